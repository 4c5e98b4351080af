// Values over time, by uPlot: lines or a stack of areas. Charts with the same `sync` share their cursor, a drag
// zooms by onZoom (the view keeps the range in its address), and the legend names the value under the cursor.
import type { JSX } from 'preact'
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'
import uPlot from 'uplot'
import { bytes, clock, count, dateTime, duration, percent, type Kind } from '../base/format'
import { css, theme } from '../base/theme'
import { bandAt, stackUp } from './series'

export interface ChartSeries {
  id: string
  name: string
  values: readonly (number | null)[]
  /** A CSS variable: --series-1 */
  color: string
  /** Filled below the line. */
  fill?: boolean
  dash?: boolean
  /** Known only where it was measured: points, and no line that would tell of the time between them. */
  measured?: boolean
  /** Part of a stack that nobody claims. */
  rest?: boolean
}

/** A moment: a line from top to bottom with its name. */
export interface ChartMark {
  t: number
  name: string
  tone: 'bad' | 'warn'
}

export interface TimeChartProps {
  label: string
  /** Seconds since 1970, ascending. */
  t: readonly number[]
  series: ChartSeries[]
  kind?: Kind
  height?: number
  stacked?: boolean
  sync?: string
  /** The time to show, also where there is nothing yet. */
  range?: [number, number] | undefined
  /** The largest value of the axis at least: the total, 100 % */
  max?: number | undefined
  onZoom?: ((from: number, to: number) => void) | undefined
  /** A line across, such as a limit. */
  limit?: { value: number; name: string } | null | undefined
  marks?: readonly ChartMark[] | undefined
  legend?: boolean
  /** Of a stack: the series whose area is under the pointer; null: none */
  onBand?: ((id: string | null) => void) | undefined
  /** Which point is under the cursor; null: none */
  onCursor?: ((index: number | null) => void) | undefined
  /** What to say when there are no points. */
  empty?: string
}

const formats: Partial<Record<Kind, (value: number | null) => string>> = {
  bytes,
  number: count,
  percent,
  age: duration,
}

export const formatOf = (kind: Kind): ((value: number | null) => string) => formats[kind] ?? ((v) => String(v ?? '-'))

/** Axis labels without needless decimals: "4 GB", "0". */
function axisText(kind: Kind, value: number): string {
  return value === 0 ? '0' : formatOf(kind)(value).replace(/\.0(?= )/, '')
}

export function TimeChart(props: TimeChartProps): JSX.Element {
  const { kind = 'bytes', height = 160, stacked = false, legend = true } = props
  const host = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | null>(null)
  const [cursor, setCursor] = useState<number | null>(null)
  const latest = useRef(props)
  latest.current = props
  const shape = props.series.map((s) => `${s.id} ${s.color} ${s.fill ?? ''} ${s.dash ?? ''}`).join('|')
  const colors = theme.value
  const many = props.series.some((s) => s.values.some((v) => v != null))

  // A new chart only when what it is made of changes; new figures go into the one that is there.
  useLayoutEffect(() => {
    if (!host.current || !many) return
    const box = host.current
    const options = makeOptions(latest, kind, stacked, box.clientWidth, height, setCursor)
    const chart = new uPlot(options, chartData(latest.current, stacked), box)
    plot.current = chart
    const resize = new ResizeObserver(() => chart.setSize({ width: box.clientWidth, height }))
    resize.observe(box)
    return () => {
      resize.disconnect()
      chart.destroy()
      plot.current = null
    }
  }, [shape, kind, stacked, height, props.sync, colors, many])

  useEffect(() => {
    plot.current?.setData(chartData(props, stacked))
  }, [props.t, props.series, props.range?.[0], props.range?.[1], props.max, props.marks])

  const at = cursor != null && cursor < props.t.length ? cursor : props.t.length - 1
  const when = cursor != null ? props.t[at] : null
  return (
    <figure class="chart" aria-label={`${props.label}. ${summary(props, kind)}`} role="img">
      <div ref={host} class="plot" style={{ height }} aria-hidden="true" />
      {!many && <div class="gone">{props.empty ?? 'Nothing was noted in this time yet.'}</div>}
      {legend && (
        <ul class="legend inline" aria-hidden="true">
          <li class="muted nowrap">{when != null ? dateTime(when).slice(5) : 'latest'}</li>
          {props.series.map((s) => (
            <li key={s.id}>
              <span class={`swatch${s.rest ? ' hatch' : ''}`} style={{ backgroundColor: `var(${s.color})` }} />
              <span class="muted">{s.name}</span>
              <span class="value">{formatOf(kind)(cursor != null ? (s.values[at] ?? null) : lastKnown(s.values))}</span>
            </li>
          ))}
        </ul>
      )}
    </figure>
  )
}

/** The step that is not over yet may have no value. */
function lastKnown(values: readonly (number | null)[]): number | null {
  for (let i = values.length - 1; i >= 0; i--) if (values[i] != null) return values[i]!
  return null
}

/** For who does not see the picture. */
function summary(props: TimeChartProps, kind: Kind): string {
  const last = props.t.length - 1
  if (last < 0) return 'no values'
  const format = formatOf(kind)
  const parts = props.series.map((s) => `${s.name} ${format(lastKnown(s.values))}`)
  return `From ${clock(props.t[0]!)} to ${clock(props.t[last]!)}; at the end: ${parts.join(', ')}`
}

function chartData(props: TimeChartProps, stacked: boolean): uPlot.AlignedData {
  const values = props.series.map((s) => s.values)
  return [props.t as number[], ...(stacked ? stackUp(values) : values)] as uPlot.AlignedData
}

/** Of the time axis; uPlot's own leave out two minutes, and a range of some minutes has one label then. */
const STEPS_S = [1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800, 2592000]

function makeOptions(
  latest: { current: TimeChartProps },
  kind: Kind,
  stacked: boolean,
  width: number,
  height: number,
  setCursor: (index: number | null) => void,
): uPlot.Options {
  const { series, sync } = latest.current
  const line = css('--line')
  const ink = css('--muted')
  const font = `11px ${css('--font') || 'sans-serif'}`
  const axis = { stroke: ink, font, ticks: { show: false }, grid: { stroke: line, width: 1 } }
  return {
    width,
    height,
    legend: { show: false },
    padding: [8, 28, 0, 0], // room for half of a time
    cursor: {
      y: false,
      points: { size: 6, show: !stacked },
      drag: { x: latest.current.onZoom != null, y: false, setScale: false },
      ...(sync ? { sync: { key: sync, scales: ['x', null] as [string, null] } } : {}),
    },
    scales: {
      x: { time: true, range: (_u, min, max) => latest.current.range ?? [min, max] },
      y: {
        range: (_u, _min, max) => {
          const { limit } = latest.current
          const top = Math.max(max ?? 0, latest.current.max ?? 0, limit ? limit.value : 0)
          return [0, top > 0 ? top * (latest.current.max ? 1 : 1.06) : 1]
        },
      },
    },
    axes: [
      { ...axis, space: 70, size: 24, incrs: STEPS_S, values: timeLabels },
      {
        ...axis,
        size: 62,
        space: 34,
        splits: (_u, _i, min, max) => niceSplits(min, max, Math.max(2, Math.floor(height / 44))),
        values: (_u, splits) => splits.map((v) => axisText(kind, v)),
      },
    ],
    series: [{}, ...series.map((s) => seriesOptions(s, stacked))],
    hooks: {
      setCursor: [
        (u) => {
          const index = u.cursor.left != null && u.cursor.left >= 0 ? (u.cursor.idx ?? null) : null
          setCursor(index)
          latest.current.onCursor?.(index)
          latest.current.onBand?.(index == null ? null : bandUnder(u, latest.current, index))
        },
      ],
      setSelect: [(u) => zoomTo(u, latest.current)],
      draw: [(u) => drawLimit(u, latest.current), (u) => drawMarks(u, latest.current)],
    },
  }
}

function seriesOptions(s: ChartSeries, stacked: boolean): uPlot.Series {
  const color = css(s.color)
  return {
    stroke: stacked ? css('--panel') : color,
    width: stacked ? 0.5 : 1.5,
    points: s.measured ? { show: true, size: 5, fill: color, stroke: color } : { show: false },
    ...(s.measured ? { paths: () => null } : {}),
    ...(stacked ? { fill: color } : s.fill ? { fill: color + '26' } : {}),
    ...(s.dash ? { dash: [5, 4] } : {}),
  }
}

function zoomTo(u: uPlot, props: TimeChartProps): void {
  const { left, width } = u.select
  if (width < 4 || !props.onZoom) return
  props.onZoom(Math.floor(u.posToVal(left, 'x')), Math.ceil(u.posToVal(left + width, 'x')))
  u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false)
}

/** The series of a stack at the height of the pointer. */
function bandUnder(u: uPlot, props: TimeChartProps, index: number): string | null {
  if (!props.stacked || u.cursor.top == null || u.cursor.top < 0) return null
  const [, ...stacked] = u.data
  return props.series[bandAt(stacked as (number | null)[][], index, u.posToVal(u.cursor.top, 'y'))]?.id ?? null
}

const MARK_WIDTH = 70 // of a name, about: marks closer than this share one

function drawMarks(u: uPlot, props: TimeChartProps): void {
  if (!props.marks?.length) return
  const { ctx, bbox } = u
  let named = -Infinity
  ctx.save()
  ctx.font = `${11 * devicePixelRatio}px ${css('--font')}`
  for (const mark of [...props.marks].sort((a, b) => a.t - b.t)) {
    const x = u.valToPos(mark.t, 'x', true)
    if (x < bbox.left || x > bbox.left + bbox.width) continue
    ctx.strokeStyle = ctx.fillStyle = css(mark.tone === 'bad' ? '--bad' : '--warn')
    ctx.setLineDash([3, 3])
    ctx.beginPath()
    ctx.moveTo(x, bbox.top)
    ctx.lineTo(x, bbox.top + bbox.height)
    ctx.stroke()
    if (x - named < MARK_WIDTH * devicePixelRatio) continue
    named = x
    const right = x > bbox.left + bbox.width / 2
    ctx.textAlign = right ? 'right' : 'left'
    ctx.fillText(mark.name, x + (right ? -4 : 4), bbox.top + 11 * devicePixelRatio)
  }
  ctx.restore()
}

function drawLimit(u: uPlot, props: TimeChartProps): void {
  if (!props.limit) return
  const y = u.valToPos(props.limit.value, 'y', true)
  const { ctx, bbox } = u
  ctx.save()
  ctx.strokeStyle = ctx.fillStyle = css('--bad')
  ctx.setLineDash([6, 4])
  ctx.beginPath()
  ctx.moveTo(bbox.left, y)
  ctx.lineTo(bbox.left + bbox.width, y)
  ctx.stroke()
  ctx.textAlign = 'right'
  ctx.font = `${11 * devicePixelRatio}px ${css('--font')}`
  ctx.fillText(props.limit.name, bbox.left + bbox.width - 4, y < bbox.top + 14 * devicePixelRatio ? y + 13 * devicePixelRatio : y - 4)
  ctx.restore()
}

/** Round values from 0 on: 1, 2, 2.5 or 5 times a power of ten apart. */
export function niceSplits(min: number, max: number, wanted: number): number[] {
  const raw = (max - min) / Math.max(1, wanted)
  if (!(raw > 0)) return [min]
  const power = 10 ** Math.floor(Math.log10(raw))
  const step = power * ([1, 2, 2.5, 5, 10].find((n) => n * power >= raw) ?? 10)
  const out: number[] = []
  for (let v = Math.ceil(min / step) * step; v <= max * 1.0001; v += step) out.push(v)
  return out
}

/** 24 hours, seconds only where they are needed, the date where the day changes. */
function timeLabels(_u: uPlot, splits: number[], _axis: number, _space: number, incr: number): string[] {
  let day = ''
  return splits.map((s) => {
    const full = dateTime(s)
    const date = full.slice(5, 10)
    if (incr >= 86400) return date
    const text = incr < 60 ? full.slice(11) : full.slice(11, 16)
    const turned = day !== '' && day !== date
    day = date
    return turned ? `${date} ${text}` : text
  })
}
