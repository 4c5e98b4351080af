// Live blocks by age and size. A table whose cells are shaded: the picture and its text for screen readers are one.
import { bytes, count, duration } from '../base/format'
import { heatBucket, heatOf } from './heat'

export interface HeatProps {
  ages: number[] // where each begins, in seconds
  sizes: number[] // in bytes
  values: number[][] // a row for each size, a column for each age
  unit: 'bytes' | 'blocks'
  label: string
}

export function HeatMap(props: HeatProps) {
  const heat = heatOf(props.values)
  const text = (value: number): string => (props.unit === 'bytes' ? bytes(value) : count(value))
  const round = (figure: string): string => figure.replace('.0 ', ' ')
  const age = (i: number): string => heatBucket(props.ages, i, (bound) => round(duration(bound)))
  const size = (i: number): string => heatBucket(props.sizes, i, (bound) => round(bytes(bound)))
  // Large blocks on top, as on every axis; rows and columns at the ends that hold nothing only take room.
  const rows = filled(heat.rows).reverse()
  const columns = filled(heat.columns)
  return (
    <table class="heat">
      <caption class="hidden-text">{props.label}</caption>
      <thead>
        <tr>
          <th scope="col">
            size <span aria-hidden="true">↓</span> age <span aria-hidden="true">→</span>
          </th>
          {columns.map((i) => (
            <th scope="col" class="num">
              {age(i)}
            </th>
          ))}
          <th scope="col" class="num sum">
            all
          </th>
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr>
            <th scope="row">{size(row)}</th>
            {columns.map((column) => {
              const value = props.values[row]?.[column] ?? 0
              return <td class={`num shade-${heat.shades[row]?.[column] ?? 0}`}>{value > 0 ? text(value) : ''}</td>
            })}
            <td class="num sum">{text(heat.rows[row] ?? 0)}</td>
          </tr>
        ))}
      </tbody>
      <tfoot>
        <tr>
          <th scope="row">all</th>
          {columns.map((i) => (
            <td class="num sum">{text(heat.columns[i] ?? 0)}</td>
          ))}
          <td class="num sum">{text(heat.total)}</td>
        </tr>
      </tfoot>
    </table>
  )
}

/** Indexes from the first to the last that is not empty. */
function filled(sums: number[]): number[] {
  const used = sums.flatMap((sum, i) => (sum > 0 ? [i] : []))
  const first = used[0]
  const last = used[used.length - 1]
  if (first === undefined || last === undefined) return []
  return Array.from({ length: last - first + 1 }, (_, i) => first + i)
}
