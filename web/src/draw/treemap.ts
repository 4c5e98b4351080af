// A squarified treemap: rectangles as large as their values, nested by level, as close to squares as they can be (Bruls,
// Huizing and van Wijk). Pure: the view paints what is here, and tests ask it without a browser.

export interface TreemapItem {
  key: string // identity among its siblings
  name: string
  value: number
  below: TreemapItem[]
}

export interface Tile {
  item: TreemapItem
  up: Tile | null
  depth: number
  left: number
  top: number
  width: number
  height: number
  head: number // height of the strip that names it; 0 where there is none
}

interface Area {
  left: number
  top: number
  width: number
  height: number
}

const HEAD = 18
const GAP = 2
/** Below this many pixels on a side, what is inside is not drawn. */
const LEAST = 24

/** Outer tiles come before what is inside them. */
export function treemapTiles(items: readonly TreemapItem[], width: number, height: number): Tile[] {
  const tiles: Tile[] = []
  fill(items, { left: 0, top: 0, width, height }, null, tiles)
  return tiles
}

function fill(items: readonly TreemapItem[], area: Area, up: Tile | null, out: Tile[]): void {
  const shown = items.filter((item) => item.value > 0).sort((a, b) => b.value - a.value || (a.key < b.key ? -1 : 1))
  const sum = shown.reduce((n, item) => n + item.value, 0)
  if (!(sum > 0) || area.width < 1 || area.height < 1) return
  const scale = (area.width * area.height) / sum
  let rest = area
  for (let from = 0; from < shown.length; ) {
    const to = rowEnd(shown, from, scale, Math.min(rest.width, rest.height))
    rest = placeRow(shown.slice(from, to), scale, rest, up, out)
    from = to
  }
}

/** Where a row along the shorter side ends: before the item that would make its worst rectangle longer. */
function rowEnd(items: readonly TreemapItem[], from: number, scale: number, side: number): number {
  let sum = 0
  let worst = Infinity
  const most = items[from]!.value * scale
  for (let at = from; at < items.length; at++) {
    const least = items[at]!.value * scale
    const next = sum + least
    const ratio = Math.max((side * side * most) / (next * next), (next * next) / (side * side * least))
    if (ratio > worst) return at
    worst = ratio
    sum = next
  }
  return items.length
}

/** Lay a row along the shorter side of `area`; what is left of the area. */
function placeRow(row: TreemapItem[], scale: number, area: Area, up: Tile | null, out: Tile[]): Area {
  const sum = row.reduce((n, item) => n + item.value * scale, 0)
  const upright = area.width >= area.height // the row is a column at the left
  const side = upright ? area.height : area.width
  const thick = side > 0 ? sum / side : 0
  let at = 0
  for (const item of row) {
    const long = thick > 0 ? (item.value * scale) / thick : 0
    const place: Area = upright
      ? { left: area.left, top: area.top + at, width: thick, height: long }
      : { left: area.left + at, top: area.top, width: long, height: thick }
    at += long
    placeOne(item, place, up, out)
  }
  return upright
    ? { left: area.left + thick, top: area.top, width: Math.max(0, area.width - thick), height: area.height }
    : { left: area.left, top: area.top + thick, width: area.width, height: Math.max(0, area.height - thick) }
}

function placeOne(item: TreemapItem, place: Area, up: Tile | null, out: Tile[]): void {
  const roomy = item.below.length > 0 && place.width >= LEAST && place.height >= LEAST + HEAD
  const tile: Tile = { item, up, depth: up ? up.depth + 1 : 0, ...place, head: roomy ? HEAD : 0 }
  out.push(tile)
  if (!roomy) return
  fill(
    item.below,
    {
      left: place.left + GAP,
      top: place.top + HEAD,
      width: Math.max(0, place.width - 2 * GAP),
      height: Math.max(0, place.height - HEAD - GAP),
    },
    tile,
    out,
  )
}

/** The innermost tile at a point, or null. */
export function treemapHit(tiles: readonly Tile[], x: number, y: number): Tile | null {
  for (let i = tiles.length - 1; i >= 0; i--) {
    const t = tiles[i]!
    if (x >= t.left && x < t.left + t.width && y >= t.top && y < t.top + t.height) return t
  }
  return null
}

/** From the outermost to the tile itself. */
export function tilePath(tile: Tile): Tile[] {
  const path: Tile[] = []
  for (let t: Tile | null = tile; t; t = t.up) path.unshift(t)
  return path
}
