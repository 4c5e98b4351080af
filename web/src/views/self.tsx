// memoird about itself: what it costs, how late it is, what it lost. A monitor that hides its own share is not to be trusted.
import type { JSX } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { useResource } from '../api/resource'
import type { Traced } from '../api/schema'
import type { HistoryAnswer, SelfAnswer } from '../api/types'
import { bytes, count, duration, percent } from '../base/format'
import { link } from '../base/route'
import { TimeChart } from '../kit/chart'
import { Badge, Card, Empty, Fact, Facts, ProblemBox, StaleNotice, ViewHead, Waiting } from '../kit/parts'
import { knownRange } from '../kit/series'
import { figureGroups, lossesOf, type FigureGroup } from './figures'
import { isMeasured } from './history_model'
import { RangeChoice, timeRange, zoom } from './range'
import { lossOf, whyNot } from './trace_model'

export function Self(): JSX.Element {
  const { data, problem } = useResource<SelfAnswer>('/self')
  const share = useCpuShare(data)
  if (!data) return problem ? <ProblemBox problem={problem} middle /> : <Waiting rows={10} />
  const { books, sockets, history, exits, pressure, leaks, http, events } = data
  const groups = figureGroups({ books, sockets, history, exits, pressure, leaks, http, events: { left_out: events['left_out'] } }, '').slice(1)
  return (
    <>
      <ViewHead title="Memoir itself" sub="what memoird takes, how late it is, and what it could not account" end={<RangeChoice />} />
      <StaleNotice problem={problem} />
      <div class="grid">
        <Costs data={data} share={share} />
        <Card title="Memory of memoird" span={7}>
          <OwnMemory pid={data.pid} />
        </Card>
        <Tracing tracing={data.tracing} />
        <Losses groups={groups} />
      </div>
      <div class="pack">
        {groups.map((group) => (
          <Card key={group.name} title={capital(group.name)}>
            <Figures group={group} />
          </Card>
        ))}
      </div>
    </>
  )
}

const capital = (text: string): string => (text === 'http' ? 'HTTP' : text.slice(0, 1).toUpperCase() + text.slice(1))
const number = (value: unknown): number | null => (typeof value === 'number' ? value : null)

const cpuOf = (data: SelfAnswer): number => data.cpu.user + data.cpu.system

/** The share of one processor between two answers that are some seconds apart. */
function useCpuShare(data: SelfAnswer | null): number | null {
  const before = useRef<{ up: number; cpu: number } | null>(null)
  const [share, setShare] = useState<number | null>(null)
  useEffect(() => {
    if (!data) return
    const up = data.uptime
    const cpu = cpuOf(data)
    const last = before.current
    if (last && up - last.up < 3 && up >= last.up) return
    if (last && up > last.up) setShare(((cpu - last.cpu) / (up - last.up)) * 100)
    before.current = { up, cpu }
  }, [data])
  return share
}

function Costs({ data, share }: { data: SelfAnswer; share: number | null }): JSX.Element {
  const cpu = cpuOf(data)
  const up = data.uptime
  const lag = (name: string): string => {
    const late = number(data.loop[name])
    return late == null ? '-' : duration(late)
  }
  const average = up > 0 ? (cpu / up) * 100 : null
  return (
    <Card title="Resource use" span={5} end={<span class="muted">up for {duration(up)}</span>}>
      <Facts>
        <Fact name="CPU, last seconds" help="share of one processor">
          {percent(share ?? average)}
        </Fact>
        <Fact name="CPU since its start" help="share of one processor, and processor time">
          {percent(average)} <small>{duration(cpu)}</small>
        </Fact>
        <Fact name="memory" help="resident memory now, and the most it has been">
          {bytes(data.rss)} <small>≤ {bytes(data.peak_rss)}</small>
        </Fact>
        <Fact name="loop lag, p50" help="how late the loop came to what was due, during the last minute">
          {lag('lag_p50')}
        </Fact>
        <Fact name="loop lag, p99">{lag('lag_p99')}</Fact>
        <Fact name="loop lag, max">{lag('lag_max')}</Fact>
        <Fact name="refresh time" help="to read the figures of all books">
          {lag('refresh')}
        </Fact>
        <Fact name="threads">{count(data.threads)}</Fact>
        <Fact name="open files">{count(data.descriptors)}</Fact>
      </Facts>
    </Card>
  )
}

/** Whether CUDA programs are traced, and why not. */
function Tracing({ tracing }: { tracing: SelfAnswer['tracing'] }): JSX.Element {
  const { data } = useResource<Traced>('/traced', {}, { every: 2000 })
  const state = data?.state ?? tracing.state
  const problem = data?.problem ?? tracing.problem
  const tone = state === 'running' ? 'good' : state === 'failed' ? 'bad' : ''
  const n = data?.processes.length ?? 0
  return (
    <Card title="Tracing of CUDA programs" span={12} end={<Badge tone={tone}>{state}</Badge>}>
      {state === 'running' ? (
        <ul class="owners" aria-label="traced processes">
          {n === 0 && <li class="muted">No process of yours uses the CUDA driver.</li>}
          {data?.processes.slice(0, 20).map((p) => (
            <li key={p.pid}>
              <a href={link(`process/${p.pid}`, { tab: 'cuda' })}>{p.program || '?'}</a> <span class="faint">{p.pid}</span>{' '}
              {count(p.calls)} calls{lossOf(p) > 0 && <span class="muted">, {count(lossOf(p))} lost</span>}
            </li>
          ))}
          {n > 20 && <li class="muted">{count(n - 20)} more</li>}
        </ul>
      ) : (
        <p class="muted">
          {whyNot({ state, problem }).title}: {whyNot({ state, problem }).text}
        </p>
      )}
    </Card>
  )
}

function Figures({ group }: { group: FigureGroup }): JSX.Element {
  return (
    <dl class="figures">
      {group.figures.map((figure) => (
        <div key={figure.name} class={figure.value === 0 ? 'zero' : ''}>
          <dt>{figure.name}</dt>
          <dd class="num">{figure.text}</dd>
        </div>
      ))}
    </dl>
  )
}

function Losses({ groups }: { groups: FigureGroup[] }): JSX.Element {
  const { counted, some } = lossesOf(groups)
  // Who is refused may be somebody who knocks at the wrong door; what is lost is missing from the figures.
  const tone = some.some((f) => /lost|left out|dropped/.test(f.name)) ? 'bad' : some.length ? 'warn' : 'good'
  return (
    <Card title="Lost, refused, left out" span={12} end={<Badge tone={tone}>{some.length ? `${some.length} of ${counted}` : 'none'}</Badge>}>
      {some.length === 0 ? (
        <Empty title="Nothing was lost">
          <span>{counted} kinds of loss are counted, from full queues to books that could not be read. All are at zero.</span>
        </Empty>
      ) : (
        <Facts>
          {some.map((figure) => (
            <Fact key={figure.name} name={figure.name}>
              {figure.text}
            </Fact>
          ))}
        </Facts>
      )}
    </Card>
  )
}

function OwnMemory({ pid }: { pid: number }): JSX.Element {
  const range = timeRange()
  const history = useResource<HistoryAnswer>(
    '/history',
    { what: 'process', pid, from: range.from, to: range.to, points: 360 },
    { every: range.zoomed ? Infinity : 10_000 },
  )
  const colors = ['--series-1', '--series-3', '--series-2', '--series-4']
  const series = (history.data?.series ?? []).filter((s) => s.kind === 'bytes').slice(0, 4)
  const t = history.data?.t ?? []
  return (
    <TimeChart
      label="Resident memory of memoird"
      t={t}
      series={series.map((s, i) => ({ id: s.name, name: s.name, values: s.last, color: colors[i]!, fill: i === 0, measured: isMeasured(s.name) }))}
      height={160}
      range={range.fixed ?? knownRange({ t, values: Object.fromEntries(series.map((s) => [s.name, s.last])) }, range.span)}
      onZoom={zoom}
      empty={history.loading ? 'Reading…' : 'memoird is too small to be among the processes whose history is kept.'}
    />
  )
}
