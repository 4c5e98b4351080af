// Which rectangles of the tree of stacks are on the screen, what lies under the pointer, and where arrow keys lead.

import type { Frame } from './tree'

/** The part of the whole that is on the screen: all of it, or that of the frame that was zoomed to. */
export interface Span {
  from: number
  size: number
}

export interface Box {
  frame: Frame
  left: number // pixels
  top: number
  width: number
}

export const icicleSpan = (it: Frame): Span => (it.width > 0 ? { from: it.x, size: it.width } : { from: 0, size: 1 })

/** What is to be painted, callers first. Narrower than `least` pixels is left out, with all that it called. */
export function icicleBoxes(root: Frame, span: Span, pixels: number, row: number, least = 0.7): Box[] {
  const boxes: Box[] = []
  const visit = [root]
  for (let it = visit.pop(); it; it = visit.pop()) {
    const start = ((it.x - span.from) / span.size) * pixels
    const end = start + (it.width / span.size) * pixels
    // A hair of tolerance: what ends exactly at the edge must not show up as a sliver beside it.
    if (end <= 1e-6 || start >= pixels - 1e-6 || end - start < least) continue
    const left = Math.max(0, start)
    boxes.push({ frame: it, left, top: it.depth * row, width: Math.min(pixels, end) - left })
    visit.push(...[...it.below].reverse())
  }
  return boxes
}

/** How many levels those boxes take. */
export const icicleLevels = (boxes: Box[]): number =>
  boxes.reduce((most, box) => Math.max(most, box.frame.depth + 1), 0)

/** The frame at a point of the picture, or null. */
export function icicleHit(boxes: Box[], row: number, x: number, y: number): Frame | null {
  const depth = Math.floor(y / row)
  const hit = boxes.find((box) => box.frame.depth === depth && x >= box.left && x < box.left + box.width)
  return hit ? hit.frame : null
}

export type Way = 'up' | 'down' | 'left' | 'right'

/** Where an arrow key leads among what is on the screen. Stays where there is nothing in that direction. */
export function icicleMove(boxes: Box[], it: Frame, way: Way): Frame {
  if (way === 'up') return it.up ?? it
  const shown = boxes.map((box) => box.frame)
  if (way === 'down') return it.below.find((child) => shown.includes(child)) ?? it
  const row = shown.filter((other) => other.depth === it.depth).sort((a, b) => a.x - b.x)
  const at = row.indexOf(it)
  return row[at + (way === 'left' ? -1 : 1)] ?? it
}
