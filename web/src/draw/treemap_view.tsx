// The treemap on a canvas: a pointer or the arrow keys choose a tile, a click or Enter opens it.
import { useMemo, useRef, useState } from 'preact/hooks'
import { css } from '../base/theme'
import { fitText, usePaint, useWidth } from './canvas'
import { nameColour, NAME_COLOURS } from './colour'
import { Tip } from './tip'
import { tilePath, treemapHit, treemapTiles, type Tile, type TreemapItem } from './treemap'

const HEIGHT = 380

export interface TreemapProps {
  items: TreemapItem[]
  label: string
  /** A value for people. */
  amount: (value: number) => string
  onOpen: (path: TreemapItem[]) => void
}

function paint(pen: CanvasRenderingContext2D, tiles: Tile[], chosen: Tile | null): void {
  const fills = Array.from({ length: NAME_COLOURS }, (_, i) => css(`--flame-${i + 1}`))
  const [text, plain, edge, ground] = [css('--flame-text'), css('--flame-plain'), css('--flame-edge'), css('--panel')]
  pen.textBaseline = 'middle'
  for (const tile of tiles) {
    pen.fillStyle = tile.depth === 0 ? plain : fills[nameColour(tile.depth === 1 ? tile.item.name : tile.up!.item.name) - 1]!
    pen.fillRect(tile.left, tile.top, tile.width, tile.height)
    pen.strokeStyle = ground
    pen.lineWidth = 1
    pen.strokeRect(tile.left + 0.5, tile.top + 0.5, Math.max(0, tile.width - 1), Math.max(0, tile.height - 1))
    const room = tile.head || (tile.height >= 16 ? Math.min(tile.height, 18) : 0)
    pen.font = `${tile.depth === 0 ? '600 ' : ''}12px ${css('--font') || 'system-ui, sans-serif'}`
    const name = room ? fitText(tile.item.name, tile.width - 10, (part) => pen.measureText(part).width) : ''
    if (name) {
      pen.fillStyle = text
      pen.fillText(name, tile.left + 5, tile.top + room / 2)
    }
  }
  if (chosen) {
    pen.strokeStyle = edge
    pen.lineWidth = 2
    pen.strokeRect(chosen.left + 1, chosen.top + 1, Math.max(1, chosen.width - 2), Math.max(1, chosen.height - 2))
  }
}

/** Arrow keys go to the next and the previous tile in drawing order; up and down change the level. */
function moved(tiles: Tile[], from: Tile | null, key: string): Tile | null {
  if (!from) return tiles[0] ?? null
  const same = tiles.filter((t) => t.depth === from.depth)
  const at = same.indexOf(from)
  switch (key) {
    case 'ArrowRight':
      return same[at + 1] ?? from
    case 'ArrowLeft':
      return same[at - 1] ?? from
    case 'ArrowUp':
      return from.up ?? from
    case 'ArrowDown':
      return tiles.find((t) => t.up === from) ?? from
    default:
      return null
  }
}

export function Treemap({ items, label, amount, onOpen }: TreemapProps) {
  const { box, width } = useWidth()
  const canvas = useRef<HTMLCanvasElement>(null)
  const [pointer, setPointer] = useState<{ x: number; y: number } | null>(null)
  const [key, setKey] = useState<string | null>(null)
  const tiles = useMemo(() => treemapTiles(items, width, HEIGHT), [items, width])
  const keyOf = (tile: Tile): string => tilePath(tile).map((t) => t.item.key).join('\u0000')
  const under = pointer ? treemapHit(tiles, pointer.x, pointer.y) : null
  const focus = key == null ? null : (tiles.find((t) => keyOf(t) === key) ?? null)
  const chosen = under ?? focus
  usePaint(canvas, width, HEIGHT, (pen) => paint(pen, tiles, chosen))
  const open = (tile: Tile | null): void => {
    if (tile) onOpen(tilePath(tile).map((t) => t.item))
  }
  const onKey = (event: KeyboardEvent): void => {
    if (event.key === 'Enter') open(focus)
    else {
      const to = moved(tiles, focus, event.key)
      if (!to) return
      setKey(keyOf(to))
    }
    event.preventDefault()
    event.stopPropagation()
  }
  const words = chosen ? `${tilePath(chosen).map((t) => t.item.name).join(' › ')}: ${amount(chosen.item.value)}` : ''
  const at = pointer ?? (focus ? { x: focus.left + 20, y: focus.top + 12 } : null)
  return (
    <div class="draw treemap" ref={box}>
      <canvas
        ref={canvas}
        class={under ? 'pointed' : ''}
        tabIndex={0}
        role="application"
        aria-roledescription="treemap"
        aria-label={`${label}. Arrow keys move, Enter opens. The same figures are in the table below.`}
        onMouseMove={(event) => setPointer({ x: event.offsetX, y: event.offsetY })}
        onMouseLeave={() => setPointer(null)}
        onClick={() => open(under)}
        onBlur={() => setKey(null)}
        onKeyDown={onKey}
      />
      <p class="hidden-text" role="status">
        {focus ? words : ''}
      </p>
      {chosen && at && (
        <Tip x={at.x} y={at.y}>
          <b>{chosen.item.name}</b>
          <span>{amount(chosen.item.value)}</span>
          {chosen.up && <small>{tilePath(chosen.up).map((t) => t.item.name).join(' › ')}</small>}
        </Tip>
      )}
    </div>
  )
}
