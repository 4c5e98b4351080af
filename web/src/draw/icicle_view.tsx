// The heap as an icicle: callers above, what they called below, as wide as the memory that they hold. A click zooms, the
// callers of what was zoomed to stay above it at full width, and lead back.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { css } from '../base/theme'
import { bytes, count, percent } from '../base/format'
import { fitText, usePaint, useWidth } from './canvas'
import { nameColour, NAME_COLOURS } from './colour'
import { icicleBoxes, icicleHit, icicleLevels, icicleMove, icicleSpan, type Box, type Span, type Way } from './icicle'
import { Tip } from './tip'
import { treeChange, treePath, treeSearch, type Frame, type Found } from './tree'

const ROW = 21
const ZOOM_MS = 180

const WAYS: Record<string, Way> = { ArrowUp: 'up', ArrowDown: 'down', ArrowLeft: 'left', ArrowRight: 'right' }

export interface IcicleProps {
  root: Frame
  zoom: Frame
  search: string
  unit: 'bytes' | 'blocks'
  label: string
  onZoom: (to: Frame) => void
}

export const amount = (value: number, unit: 'bytes' | 'blocks'): string =>
  unit === 'bytes' ? bytes(value) : `${count(value)} ${value === 1 ? 'block' : 'blocks'}`

export const signed = (value: number, unit: 'bytes' | 'blocks'): string =>
  value === 0 ? 'unchanged' : `${value > 0 ? '+' : '−'}${amount(Math.abs(value), unit)}`

interface Look {
  fills: string[]
  text: string
  edge: string
  mark: string
  grown: string
  shrunk: string
  plain: string
  font: string
}

function look(): Look {
  return {
    fills: Array.from({ length: NAME_COLOURS }, (_, i) => css(`--flame-${i + 1}`)),
    text: css('--flame-text'),
    edge: css('--flame-edge'),
    mark: css('--flame-mark'),
    grown: css('--grown'),
    shrunk: css('--shrunk'),
    plain: css('--flame-plain'),
    font: `12px ${css('--font') || 'system-ui, sans-serif'}`,
  }
}

function paint(
  pen: CanvasRenderingContext2D,
  boxes: Box[],
  zoom: Frame,
  found: Found | null,
  chosen: Frame | null,
): void {
  const style = look()
  pen.font = style.font
  pen.textBaseline = 'middle'
  for (const { frame, left, top, width } of boxes) {
    const gap = width > 3 ? 1 : 0
    const caller = frame.depth < zoom.depth
    const change = treeChange(frame)
    pen.globalAlpha = caller ? 0.55 : found && !found.match.has(frame) ? 0.3 : 1
    pen.fillStyle = frame.before === null ? style.fills[nameColour(frame.name) - 1]! : style.plain
    pen.fillRect(left, top, width - gap, ROW - 1)
    if (change !== 0) {
      pen.globalAlpha *= 0.2 + 0.8 * Math.min(1, Math.abs(change))
      pen.fillStyle = change > 0 ? style.grown : style.shrunk
      pen.fillRect(left, top, width - gap, ROW - 1)
    }
    pen.globalAlpha = 1
    if (found?.match.has(frame)) {
      pen.fillStyle = style.mark
      pen.fillRect(left, top + ROW - 4, width - gap, 3)
    }
    const text = fitText(frame.name, width - 10, (part) => pen.measureText(part).width)
    if (text) {
      pen.globalAlpha = caller ? 0.75 : found && !found.match.has(frame) ? 0.6 : 1
      pen.fillStyle = style.text
      pen.fillText(text, left + 5, top + ROW / 2)
      pen.globalAlpha = 1
    }
    if (frame === chosen) {
      pen.strokeStyle = style.edge
      pen.lineWidth = 2
      pen.strokeRect(left + 1, top + 1, Math.max(1, width - gap - 2), ROW - 3)
    }
  }
}

/** The part on the screen, moving to where it should be; at once for who does not want things to move. */
function useSpan(target: Span): Span {
  const [span, setSpan] = useState(target)
  const now = useRef(span)
  now.current = span
  useEffect(() => {
    const from = now.current
    if (from.from === target.from && from.size === target.size) return
    if (matchMedia('(prefers-reduced-motion: reduce)').matches) {
      setSpan(target)
      return
    }
    const start = performance.now()
    let frame = 0
    const step = (time: number): void => {
      const part = Math.min(1, Math.max(0, (time - start) / ZOOM_MS))
      const ease = 1 - (1 - part) ** 3
      setSpan({
        from: from.from + (target.from - from.from) * ease,
        size: from.size + (target.size - from.size) * ease,
      })
      if (part < 1) frame = requestAnimationFrame(step)
    }
    frame = requestAnimationFrame(step)
    return () => cancelAnimationFrame(frame)
  }, [target.from, target.size])
  return span
}

/** What a frame holds, in words: for the box beside the pointer and for screen readers. */
function describe(frame: Frame, root: Frame, unit: 'bytes' | 'blocks'): string[] {
  const lines = [
    `${amount(frame.total, unit)}, ${percent((100 * frame.total) / (root.total || 1))} of all`,
    frame.self > 0 && frame.below.length ? `${amount(frame.self, unit)} by itself` : '',
    frame.before === null ? '' : `${signed(frame.total - frame.before, unit)}, was ${amount(frame.before, unit)}`,
  ]
  return lines.filter((line) => line !== '')
}

export function Icicle(props: IcicleProps) {
  const { root, zoom, unit } = props
  const { box, width } = useWidth()
  const canvas = useRef<HTMLCanvasElement>(null)
  const [pointer, setPointer] = useState<{ frame: Frame; x: number; y: number } | null>(null)
  const [chosen, setChosen] = useState<Frame | null>(null)
  const span = useSpan(icicleSpan(zoom))
  const boxes = useMemo(() => icicleBoxes(root, span, width, ROW), [root, span, width])
  const found = useMemo(() => (props.search ? treeSearch(root, props.search) : null), [root, props.search])
  const height = Math.max(1, icicleLevels(boxes)) * ROW
  const focus = chosen && boxes.some((b) => b.frame === chosen) ? chosen : null

  usePaint(canvas, width, height, (pen) => paint(pen, boxes, zoom, found, focus ?? pointer?.frame ?? null))

  const at = (event: MouseEvent): Frame | null => icicleHit(boxes, ROW, event.offsetX, event.offsetY)
  const onKey = (event: KeyboardEvent): void => {
    const here = focus ?? zoom
    const way = WAYS[event.key]
    if (way) setChosen(icicleMove(boxes, here, way))
    else if (event.key === 'Enter' || event.key === ' ') props.onZoom(here)
    else if (event.key === 'Escape' || event.key === 'Backspace') {
      if (zoom === root) return
      props.onZoom(zoom.up ?? root)
      setChosen(zoom)
    } else if (event.key === 'Home') setChosen(zoom)
    else return
    event.preventDefault()
    event.stopPropagation()
  }
  const tip = pointer ?? (focus ? besideBox(boxes, focus) : null)
  return (
    <div class="draw icicle" ref={box}>
      <canvas
        ref={canvas}
        class={pointer ? 'pointed' : ''}
        tabIndex={0}
        role="application"
        aria-roledescription="icicle chart"
        aria-label={`${props.label}. Arrow keys move, Enter zooms in, Escape zooms out. The same as a table: button Table.`}
        onMouseMove={(event) => {
          const frame = at(event)
          setPointer(frame ? { frame, x: event.offsetX, y: event.offsetY } : null)
        }}
        onMouseLeave={() => setPointer(null)}
        onClick={(event) => {
          const frame = at(event)
          if (frame) props.onZoom(frame === zoom && zoom.up ? zoom.up : frame)
        }}
        onFocus={() => setChosen((before) => before ?? zoom)}
        onBlur={() => setChosen(null)}
        onKeyDown={onKey}
      />
      <p class="hidden-text" role="status">
        {focus ? [focus.name, ...describe(focus, root, unit)].join(', ') : ''}
      </p>
      {tip && (
        <Tip x={tip.x} y={tip.y}>
          <b>{tip.frame.whole ?? tip.frame.name}</b>
          {describe(tip.frame, root, unit).map((line) => (
            <span>{line}</span>
          ))}
          {tip.frame.up && (
            <small>
              {treePath(tip.frame.up)
                .slice(-3)
                .map((f) => f.name)
                .join(' › ')}
            </small>
          )}
        </Tip>
      )}
    </div>
  )
}

function besideBox(boxes: Box[], frame: Frame): { frame: Frame; x: number; y: number } | null {
  const found = boxes.find((b) => b.frame === frame)
  return found ? { frame, x: found.left + Math.min(found.width, 40), y: found.top + ROW - 8 } : null
}
