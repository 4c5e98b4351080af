// Small parts that every screen uses: cards, badges, meters, named figures, choices, notices, what to say when there is
// nothing or something went wrong.
import type { ComponentChildren, JSX } from 'preact'
import { Problem } from '../api/client'
import { percent } from '../base/format'

export type Tone = 'good' | 'warn' | 'bad' | 'accent' | ''

interface CardProps {
  title?: ComponentChildren
  /** How many of the 12 columns it spans on a wide screen. */
  span?: 3 | 4 | 5 | 6 | 7 | 8 | 9 | 12
  end?: ComponentChildren
  class?: string
  children: ComponentChildren
}

export function Card({ title, span = 12, end, children, ...rest }: CardProps): JSX.Element {
  return (
    <section class={`card${span < 12 ? ` span-${span}` : ''} ${rest.class ?? ''}`}>
      {title != null && (
        <header>
          <h2>{title}</h2>
          {end != null && <div class="end">{end}</div>}
        </header>
      )}
      {children}
    </section>
  )
}

export function ViewHead({ title, sub, end }: { title: ComponentChildren; sub?: ComponentChildren; end?: ComponentChildren }): JSX.Element {
  return (
    <div class="view-head">
      <h1>{title}</h1>
      {sub != null && <span class="sub">{sub}</span>}
      {end != null && <div class="end row wrap">{end}</div>}
    </div>
  )
}

export function Badge({ tone = '', tip, children }: { tone?: Tone; tip?: string | undefined; children: ComponentChildren }): JSX.Element {
  return (
    <span class={`badge ${tone}`} data-tip={tip}>
      {children}
    </span>
  )
}

/** From which share of a limit on a meter warns, and from which it is red; the command line has the same. */
export const METER_WARN = 0.75
export const METER_BAD = 0.9

export const meterTone = (share: number): Tone => (share >= METER_BAD ? 'bad' : share >= METER_WARN ? 'warn' : '')

interface MeterProps {
  /** 0 to 1; null: not known */
  share: number | null
  label: string
  /** Another point to mark, such as the peak. */
  mark?: number | null
  tone?: Tone
}

export function Meter({ share, label, mark, tone }: MeterProps): JSX.Element {
  const part = share == null ? 0 : Math.max(0, Math.min(1, share))
  return (
    <span
      class={`meter ${tone ?? meterTone(part)}`}
      role="img"
      aria-label={`${label}: ${share == null ? 'not known' : percent(part * 100)}`}
    >
      <i style={{ width: `${part * 100}%` }} />
      {mark != null && <b style={{ left: `${Math.max(0, Math.min(1, mark)) * 100}%` }} />}
    </span>
  )
}

export function Facts({ children, wide }: { children: ComponentChildren; wide?: boolean }): JSX.Element {
  return <dl class={`facts${wide ? ' wide' : ''}`}>{children}</dl>
}

export function Fact({ name, children, help }: { name: string; children: ComponentChildren; help?: string | undefined }): JSX.Element {
  return (
    <div class="fact" data-tip={help}>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  )
}

interface ChoiceProps<T extends string> {
  label: string
  options: readonly (readonly [T, string])[]
  value: T
  onChange: (value: T) => void
}

/** One of a few, side by side. */
export function Choice<T extends string>({ label, options, value, onChange }: ChoiceProps<T>): JSX.Element {
  return (
    <div class="choice" role="group" aria-label={label}>
      {options.map(([id, text]) => (
        <button key={id} type="button" aria-pressed={id === value} onClick={() => onChange(id)}>
          {text}
        </button>
      ))}
    </div>
  )
}

/** Tabs of a view are addresses, so that each can be linked to. */
export function Tabs({ label, tabs, now }: { label: string; tabs: { id: string; title: ComponentChildren; href: string }[]; now: string }): JSX.Element {
  return (
    <nav class="tabs" aria-label={label}>
      {tabs.map((tab) => (
        <a key={tab.id} href={tab.href} aria-current={tab.id === now ? 'page' : undefined}>
          {tab.title}
        </a>
      ))}
    </nav>
  )
}

/** Nothing to show: what that means, and what to do next. */
export function Empty({ title, middle, children }: { title: string; middle?: boolean; children?: ComponentChildren }): JSX.Element {
  return (
    <div class={`state${middle ? ' middle' : ''}`}>
      <strong>{title}</strong>
      {children}
    </div>
  )
}

/** What went wrong, in memoird's own words, and what happens now. */
export function ProblemBox({ problem, middle }: { problem: Problem; middle?: boolean }): JSX.Element {
  const next =
    problem.status === 0 || problem.status >= 500
      ? 'The page tries again by itself. If it stays so, see: systemctl status memoird, or memoir doctor.'
      : problem.status === 429
        ? 'Too many requests; the page waits a moment.'
        : problem.status === 403
          ? 'Ask the owner of this machine for more, or log in as the owner of the process (memoir open).'
          : ''
  return (
    <div class={`state${middle ? ' middle' : ''}`} role="alert">
      <strong>{problem.title}</strong>
      {problem.detail && <span>{problem.detail}</span>}
      {next && <span>{next}</span>}
    </div>
  )
}

/** Over a view whose figures are of before: the last try to refresh them failed. */
export function StaleNotice({ problem }: { problem: Problem | null }): JSX.Element | null {
  if (!problem) return null
  return (
    <div class="notice bad" role="status">
      <span>
        {problem.title}
        {problem.detail ? `: ${problem.detail}` : ''}
      </span>
    </div>
  )
}

/** While the first answer is on its way: as high as what comes, so that nothing jumps. */
export function Waiting({ rows = 4 }: { rows?: number }): JSX.Element {
  return (
    <div class="waiting" role="status" aria-label="loading">
      {Array.from({ length: rows }, (_, i) => (
        <div key={i} class="ghost" style={{ width: `${90 - ((i * 37) % 45)}%`, marginTop: '12px' }} />
      ))}
    </div>
  )
}
