// A small chart without axes, for tables and cards. Gaps stay gaps.
import type { JSX } from 'preact'

interface SparkProps {
  label: string
  values: readonly (number | null)[]
  /** Where the chart begins; the smallest value without it. */
  min?: number
  max?: number
  tone?: 'bad' | ''
  height?: number
}

const WIDTH = 100
const HEIGHT = 24

export interface SparkPaths {
  line: string
  area: string
}

/** SVG paths in a box of 100 × 24, one piece for each run of known values. */
export function sparkPaths(values: readonly (number | null)[], min?: number, max?: number): SparkPaths {
  let low = min ?? Infinity
  let high = max ?? -Infinity
  for (const v of values) {
    if (v == null) continue
    if (min == null && v < low) low = v
    if (max == null && v > high) high = v
  }
  const range = high > low ? high - low : 1
  const step = values.length > 1 ? WIDTH / (values.length - 1) : 0
  const round = (n: number): number => Math.round(n * 100) / 100
  const y = (v: number): number => round(HEIGHT - 1 - ((v - low) / range) * (HEIGHT - 2))
  let line = ''
  let area = ''
  for (let i = 0; i < values.length; ) {
    if (values[i] == null) {
      i++
      continue
    }
    const from = i
    let piece = ''
    for (; i < values.length && values[i] != null; i++) piece += `${i === from ? 'M' : 'L'}${round(i * step)} ${y(values[i]!)}`
    line += piece
    area += `${piece}L${round((i - 1) * step)} ${HEIGHT}L${round(from * step)} ${HEIGHT}Z`
  }
  return { line, area }
}

export function Spark({ label, values, min, max, tone = '', height = HEIGHT }: SparkProps): JSX.Element {
  const { line, area } = sparkPaths(values, min, max)
  return (
    <svg
      class={`spark ${tone}`}
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={label}
      style={{ height }}
    >
      <path class="area" d={area} />
      <path class="line" d={line} />
    </svg>
  )
}
