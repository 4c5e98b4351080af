// The map of a device's memory by address, from left to right and line by line. Colours tell the holders apart, strength
// how full a cell is; a table of the same ranges stands behind it.
import { useMemo, useRef, useState } from 'preact/hooks'
import { css, seriesColor } from '../base/theme'
import { bytes, count, percent } from '../base/format'
import { usePaint, useWidth } from './canvas'
import { fragmentCells, type Fragments } from './fragments'
import { Tip } from './tip'

const CELL = 11
const ROWS = 14

export interface MapProps {
  map: Fragments
  owners: Map<number, { name: string; colour: number }>
  label: string
}

export function FragmentMap({ map, owners, label }: MapProps) {
  const { box, width } = useWidth()
  const canvas = useRef<HTMLCanvasElement>(null)
  const [chosen, setChosen] = useState<number | null>(null)
  const [pointer, setPointer] = useState<number | null>(null)
  const across = Math.max(1, Math.floor(width / CELL))
  const cells = useMemo(() => fragmentCells(map, across * ROWS), [map, across])
  const at = pointer ?? chosen

  usePaint(canvas, width, ROWS * CELL, (pen) => {
    const empty = css('--cell-free')
    const edge = css('--flame-edge')
    cells.forEach((cell, i) => {
      const left = (i % across) * CELL
      const top = Math.floor(i / across) * CELL
      pen.fillStyle = empty
      pen.fillRect(left, top, CELL - 1, CELL - 1)
      if (cell.used > 0) {
        // At least a fifth, so that a small block in a large cell can be seen at all.
        pen.globalAlpha = 0.2 + 0.8 * cell.used
        pen.fillStyle = seriesColor(owners.get(cell.pid)?.colour ?? 7)
        pen.fillRect(left, top, CELL - 1, CELL - 1)
        pen.globalAlpha = 1
      }
      if (i === at) {
        pen.strokeStyle = edge
        pen.lineWidth = 2
        pen.strokeRect(left, top, CELL - 1, CELL - 1)
      }
    })
  })

  const under = (event: MouseEvent): number | null => {
    const i = Math.floor(event.offsetY / CELL) * across + Math.floor(event.offsetX / CELL)
    return event.offsetX < across * CELL && cells[i] ? i : null
  }
  const onKey = (event: KeyboardEvent): void => {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across }[event.key]
    if (!step) return
    event.preventDefault()
    setChosen((before) => {
      const next = (before ?? 0) + step
      return cells[next] ? next : before
    })
  }
  const lines = at === null ? [] : describe(map, cells.length, at, cells[at], owners)
  return (
    <div class="draw map" ref={box}>
      <canvas
        ref={canvas}
        tabIndex={0}
        role="application"
        aria-roledescription="map of memory"
        aria-label={`${label}. Arrow keys move from cell to cell. The same as a table: button Table.`}
        onMouseMove={(event) => setPointer(under(event))}
        onMouseLeave={() => setPointer(null)}
        onFocus={() => setChosen((before) => before ?? 0)}
        onBlur={() => setChosen(null)}
        onKeyDown={onKey}
      />
      <p class="hidden-text" role="status">
        {pointer === null ? lines.join(', ') : ''}
      </p>
      {at !== null && (
        <Tip x={(at % across) * CELL} y={Math.floor(at / across) * CELL}>
          <b>{lines[0]}</b>
          {lines.slice(1).map((line) => (
            <span>{line}</span>
          ))}
        </Tip>
      )}
    </div>
  )
}

function describe(
  map: Fragments,
  cells: number,
  i: number,
  cell: { used: number; pid: number; blocks: number } | undefined,
  owners: MapProps['owners'],
): string[] {
  if (!cell) return []
  const each = map.size / cells
  const start = BigInt(Math.floor(i * each)) + map.base
  const held =
    cell.used > 0
      ? `${percent(cell.used * 100)} in use, ${count(cell.blocks)} ${cell.blocks === 1 ? 'block' : 'blocks'}`
      : 'free'
  const lines = [map.addresses ? `0x${start.toString(16)}, ${bytes(each)}` : bytes(each), held]
  if (cell.used > 0) lines.push(`${owners.get(cell.pid)?.name ?? 'PID'} ${cell.pid}`)
  return lines
}
