// A whole and its parts: one bar whose segments add up to it, and a legend that names each with its figure.
import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { bytes, percent } from '../base/format'

export interface Part {
  id: string
  name: string
  value: number | null
  /** A CSS colour: var(--part-anon) */
  color: string
  help?: string
  /** What nobody claims: drawn with stripes, so that it is told apart without colours. */
  rest?: boolean
}

interface StackProps {
  label: string
  parts: Part[]
  total: number
  /** Without the names and figures below. */
  thin?: boolean
  format?: (value: number | null) => string
}

/** Widths in percent of the total; what is known of the parts may be less or, read at another moment, a bit more. */
export function shares(parts: Part[], total: number): number[] {
  const sum = parts.reduce((n, part) => n + (part.value ?? 0), 0)
  const whole = Math.max(total, sum)
  return parts.map((part) => (whole > 0 ? ((part.value ?? 0) / whole) * 100 : 0))
}

export function Stack({ label, parts, total, thin, format = bytes }: StackProps): JSX.Element {
  const [focus, setFocus] = useState<string | null>(null)
  const widths = shares(parts, total)
  const say = parts
    .filter((p) => p.value != null)
    .map((p) => `${p.name} ${format(p.value)}`)
    .join(', ')
  return (
    <div onPointerLeave={() => setFocus(null)}>
      <div class={`stack${thin ? ' thin' : ''}`} role="img" aria-label={`${label}, ${format(total)}: ${say}`}>
        {parts.map((part, i) => (
          <i
            key={part.id}
            class={`${part.rest ? 'hatch' : ''}${focus && focus !== part.id ? ' dim' : ''}`}
            style={{ width: `${widths[i]}%`, backgroundColor: part.color }}
            data-tip={`${part.name}: ${format(part.value)} (${percent(widths[i])})`}
            onPointerEnter={() => setFocus(part.id)}
          />
        ))}
      </div>
      {!thin && (
        <ul class="legend">
          {parts.map((part, i) => (
            <li
              key={part.id}
              class={focus && focus !== part.id ? 'dim' : ''}
              data-tip={part.help}
              onPointerEnter={() => setFocus(part.id)}
            >
              <span class={`swatch${part.rest ? ' hatch' : ''}`} style={{ backgroundColor: part.color }} />
              <span class="clip">{part.name}</span>
              <span class="num">{format(part.value)}</span>
              <span class="num muted">{part.value == null ? '' : percent(widths[i])}</span>
            </li>
          ))}
        </ul>
      )}
    </div>
  )
}
