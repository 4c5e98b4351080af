// The time that charts of a view show, in its address: the last so long (?range=1h), or a piece that was zoomed into
// (?from=…&to=…).
import type { JSX } from 'preact'
import { setWords, word } from '../base/route'
import { Choice } from '../kit/parts'

export const RANGES = { '10m': 600, '1h': 3600, '6h': 21600, '1d': 86400, '7d': 604800 } as const
export type RangeId = keyof typeof RANGES

export interface TimeRange {
  /** Arguments of /history. */
  from: string
  to: string | null
  /** Seconds that it spans. */
  span: number
  zoomed: boolean
  /** Of a piece: where it begins and ends. */
  fixed: [number, number] | undefined
}

export function timeRange(otherwise: RangeId = '1h'): TimeRange {
  const from = Number(word('from'))
  const to = Number(word('to'))
  if (from > 0 && to > from)
    return { from: String(from), to: String(to), span: to - from, zoomed: true, fixed: [from, to] }
  const id = word('range', otherwise)
  const known = (id in RANGES ? id : otherwise) as RangeId
  return { from: `-${known}`, to: null, span: RANGES[known], zoomed: false, fixed: undefined }
}

export const zoom = (from: number, to: number): void => setWords({ from, to }, true)

export function RangeChoice({ otherwise = '1h' }: { otherwise?: RangeId }): JSX.Element {
  const range = timeRange(otherwise)
  return (
    <>
      {range.zoomed && (
        <button type="button" class="button plain" onClick={() => setWords({ from: null, to: null })}>
          Back to live
        </button>
      )}
      <Choice
        label="time to show"
        options={(Object.keys(RANGES) as RangeId[]).map((id) => [id, id] as const)}
        value={range.zoomed ? ('' as RangeId) : (range.from.slice(1) as RangeId)}
        onChange={(id) => setWords({ range: id, from: null, to: null })}
      />
    </>
  )
}
