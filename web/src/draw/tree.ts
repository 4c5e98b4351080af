// The tree of call stacks behind the icicle: read from an answer of the API, compared with another moment, searched.
// Pure: the view paints what is here, and tests ask it without a browser.

export interface FlameAnswer {
  program?: string
  names: string[] // in short
  functions?: (string | null)[] // their whole names; null: no longer
  keys: string[]
  values: string[]
  nodes: number[][] // [parent, name, value...]; node 0 is the root, parents come first
  estimate?: number[] // nodes that are estimated from samples
  at_peak?: boolean // live figures are those at the peak
}

export interface Frame {
  name: string
  whole?: string // its name, where that is longer
  key: string // identity among siblings, the same at every moment
  up: Frame | null
  depth: number
  total: number // with all that is below
  self: number // of stacks that end here
  before: number | null // in a comparison, the total at the earlier moment
  below: Frame[] // from large to small
  x: number // left edge and width in the picture, as parts of the whole
  width: number
}

function frame(name: string, key: string, up: Frame | null, total: number, before: number | null): Frame {
  const made: Frame = {
    name,
    key,
    up,
    depth: up ? up.depth + 1 : 0,
    total,
    self: 0,
    before,
    below: [],
    x: 0,
    width: 0,
  }
  if (up) up.below.push(made)
  return made
}

/** Every frame once, parents before children. */
export function frames(root: Frame): Frame[] {
  const all = [root]
  for (let i = 0; i < all.length; i++) all.push(...all[i]!.below)
  return all
}

/** How the C library starts a program: in every stack, and never what one looks for. */
export const isStart = (name: string): boolean => /^(_start|__libc_start_)/.test(name)

/** Take one of the answer's values; null where the answer has no stacks. */
export function treeOf(answer: FlameAnswer, value: number): Frame | null {
  const made: Frame[] = []
  answer.nodes.forEach((node, i) => {
    const label = node[1] ?? -1
    const name = answer.names[label] || (i === 0 && answer.program) || '?'
    const up = i === 0 ? null : made[node[0] ?? -1]
    if (up === undefined) throw new RangeError(`frame ${i} of the answer comes before its caller`)
    // What starts the program is its first frame already; who is called from there is called by it.
    if (up && up.up === null && isStart(name)) made.push(up)
    else {
      const it = frame(name, answer.keys[label] ?? name, up, node[2 + value] ?? 0, null)
      const whole = answer.functions?.[label]
      if (whole) it.whole = whole
      made.push(it)
    }
  })
  return made[0] ? finish(made[0]) : null
}

/**
 * Order, sums and places. A caller never has less than what it called: that may have been counted a moment later. In a
 * comparison a frame is as wide as at the moment when it was larger, so that what went away shows, too.
 */
function finish(root: Frame): Frame {
  const all = frames(root)
  for (const it of all.reverse()) {
    const called = it.below.reduce((sum, child) => sum + child.total, 0)
    it.total = Math.max(it.total, called)
    it.self = it.total - called
    const wide = it.below.reduce((sum, child) => sum + child.width, 0)
    it.width = Math.max(it.total, it.before ?? 0, wide)
    it.below.sort((a, b) => b.width - a.width || (a.name < b.name ? -1 : 1))
  }
  const whole = root.width || 1
  for (const it of all.reverse()) {
    let at = it.x
    for (const child of it.below) {
      child.x = at
      at += child.width / whole
    }
    it.width /= whole
  }
  return root
}

/** Both moments in one tree: frames of either, told apart by the keys on their path. */
export function treeDiff(old: Frame, now: Frame): Frame {
  const root = frame(now.name, now.key, null, 0, 0)
  const take = (from: Frame, add: (into: Frame, bytes: number) => void): void => {
    const visit: [Frame, Frame][] = [[from, root]]
    for (let pair = visit.pop(); pair; pair = visit.pop()) {
      const [source, into] = pair
      add(into, source.total)
      for (const child of source.below)
        visit.push([
          child,
          into.below.find((known) => known.key === child.key) ?? frame(child.name, child.key, into, 0, 0),
        ])
    }
  }
  take(now, (into, bytes) => (into.total += bytes))
  take(old, (into, bytes) => (into.before = (into.before ?? 0) + bytes))
  return finish(root)
}

/** How much a frame changed, from -1 (gone) over 0 to 1 (new): the difference as a part of the larger one. */
export function treeChange(it: Frame): number {
  if (it.before === null) return 0
  const larger = Math.max(it.total, it.before)
  return larger > 0 ? (it.total - it.before) / larger : 0
}

/** From the root to the frame, both included. */
export function treePath(it: Frame): Frame[] {
  const path: Frame[] = []
  for (let at: Frame | null = it; at; at = at.up) path.push(at)
  return path.reverse()
}

/** The frame that the same keys lead to in another tree, or the deepest of its callers that is there. */
export function treeFollow(it: Frame, root: Frame): Frame {
  let at = root
  for (const step of treePath(it).slice(1)) {
    const next = at.below.find((child) => child.key === step.key)
    if (!next) break
    at = next
  }
  return at
}

const START = 2166136261

function hashStep(hash: number, key: string): number {
  for (let i = 0; i < key.length; i++) hash = Math.imul(hash ^ key.charCodeAt(i), 16777619)
  return Math.imul(hash ^ 10, 16777619)
}

/** A short mark for an address: the keys on the path, hashed. The same at every moment. */
export function frameMark(it: Frame): string {
  return (treePath(it).reduce((hash, step) => hashStep(hash, step.key), START) >>> 0).toString(16)
}

/** The frame of that mark, or null. */
export function treeFind(root: Frame, mark: string): Frame | null {
  const visit: [Frame, number][] = mark ? [[root, hashStep(START, root.key)]] : []
  for (let pair = visit.pop(); pair; pair = visit.pop()) {
    const [it, hash] = pair
    if ((hash >>> 0).toString(16) === mark) return it
    for (const child of it.below) visit.push([child, hashStep(hash, child.key)])
  }
  return null
}

export interface Found {
  match: Set<Frame>
  total: number // held by what was found, counted once where one called another
}

/** Frames whose names have the text in them, in any case of letters. */
export function treeSearch(root: Frame, text: string): Found {
  const wanted = text.trim().toLowerCase()
  const found: Found = { match: new Set(), total: 0 }
  if (!wanted) return found
  const inside = new Set<Frame>()
  for (const it of frames(root)) {
    const covered = it.up !== null && inside.has(it.up)
    if (it.name.toLowerCase().includes(wanted)) {
      found.match.add(it)
      if (!covered) found.total += it.total
    }
    if (covered || found.match.has(it)) inside.add(it)
  }
  return found
}

/** The same as a list: what is below `top`, the largest first; in a comparison, what changed most. */
export function treeRows(top: Frame, limit: number): Frame[] {
  const weight = (it: Frame): number => (it.before === null ? it.total : Math.abs(it.total - it.before))
  return frames(top)
    .sort((a, b) => weight(b) - weight(a) || a.depth - b.depth)
    .slice(0, limit)
}
