// A map of a device's memory by address: which parts are taken, by whom, and how large the holes are.
//
// Programs call their blocks by addresses or by handles, and the API gives what they say. Handles are no places: when the
// numbers cannot lie in a memory of that size, the map says so and shows the blocks side by side, without holes.

export interface Block {
  id: string
  bytes: number
  pid: number
}

export interface Piece {
  start: number // from the start of the map
  bytes: number
  pid: number
}

export interface Fragments {
  addresses: boolean // false: handles, so the order is all that is known
  base: bigint // the address where the map starts
  size: number // bytes that it shows
  pieces: Piece[] // by address
  used: number
  free: number
  gaps: number
  largestGap: number
  /** 0: all that is free is one piece; near 1: it is in crumbs. null where nothing can be said. */
  fragmentation: number | null
}

export interface Cell {
  used: number // 0 to 1
  pid: number // who holds most of it; -1: nobody
  blocks: number
}

interface Placed {
  at: bigint
  end: bigint
  bytes: number
  pid: number
}

/** Where `capacity` is null, the map ends with the last block, and what is free behind it is not known. */
export function fragmentsOf(blocks: Block[], capacity: number | null): Fragments {
  const numbers = blocks.every((block) => /^(0x[0-9a-f]{1,16}|\d{1,20})$/i.test(block.id))
  const placed: Placed[] = blocks.map(({ id, bytes, pid }) => {
    const at = numbers ? BigInt(id) : 0n
    return { at, end: at + BigInt(bytes), bytes, pid }
  })
  placed.sort((a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : 0))
  const first = placed[0]?.at ?? 0n
  const end = placed.reduce((most, p) => (p.end > most ? p.end : most), first)
  const extent = Number(end - first)
  const fits = capacity === null || extent <= capacity
  if (numbers && fits && placed.length > 0 && !overlapping(placed)) {
    // Memory of a device usually starts at 0; where blocks lie higher up than it is large, they tell where it starts.
    const base = capacity !== null && end <= BigInt(capacity) ? 0n : first
    return byAddress(placed, base, capacity ?? extent)
  }
  return sideBySide(placed, capacity)
}

/** Blocks that lie in each other by more than a little are none of one address space: handles that count up. */
function overlapping(placed: Placed[]): boolean {
  let overlap = 0
  let sum = 0
  let reached = -1n
  for (const p of placed) {
    sum += p.bytes
    if (p.at < reached) overlap += Math.min(p.bytes, Number(reached - p.at))
    if (p.end > reached) reached = p.end
  }
  return overlap > sum / 100
}

function byAddress(placed: Placed[], base: bigint, size: number): Fragments {
  const pieces = placed.map((p) => ({ start: Number(p.at - base), bytes: p.bytes, pid: p.pid }))
  let used = 0
  let reached = 0
  let gaps = 0
  let largestGap = 0
  const gap = (bytes: number): void => {
    if (bytes > 0) gaps++
    largestGap = Math.max(largestGap, bytes)
  }
  for (const piece of pieces) {
    gap(piece.start - reached)
    const end = piece.start + piece.bytes
    used += Math.max(0, end - Math.max(reached, piece.start))
    reached = Math.max(reached, end)
  }
  gap(size - reached)
  const free = Math.max(0, size - used)
  const fragmentation = free > 0 ? 1 - largestGap / free : null
  return { addresses: true, base, size, pieces, used, free, gaps, largestGap, fragmentation }
}

function sideBySide(placed: Placed[], capacity: number | null): Fragments {
  let used = 0
  const pieces = placed.map((p) => {
    const piece = { start: used, bytes: p.bytes, pid: p.pid }
    used += p.bytes
    return piece
  })
  const size = Math.max(used, capacity ?? 0)
  const free = size - used
  return { addresses: false, base: 0n, size, pieces, used, free, gaps: 0, largestGap: 0, fragmentation: null }
}

/** Cut the map into `n` equal cells. */
export function fragmentCells(map: Fragments, n: number): Cell[] {
  const cells: (Cell & { held: Map<number, number> })[] = Array.from({ length: n }, () => {
    return { used: 0, pid: -1, blocks: 0, held: new Map() }
  })
  const each = map.size / n
  if (!(each > 0)) return cells
  for (const piece of map.pieces) {
    const end = piece.start + piece.bytes
    for (let i = Math.floor(piece.start / each); i < Math.ceil(end / each); i++) {
      const cell = cells[i]
      if (!cell) break
      const part = Math.min(end, (i + 1) * each) - Math.max(piece.start, i * each)
      cell.blocks++
      cell.used += part / each
      cell.held.set(piece.pid, (cell.held.get(piece.pid) ?? 0) + part)
    }
  }
  return cells.map(({ used, blocks, held }) => {
    const most = [...held].reduce((best, holder) => (holder[1] > best[1] ? holder : best), [-1, 0])
    return { used: Math.min(1, used), pid: most[0]!, blocks }
  })
}
