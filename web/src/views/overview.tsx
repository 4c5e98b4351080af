// The machine at a glance: who holds its memory now and over time, who waits for it, its devices, who grows, what
// happened.
import { signal } from '@preact/signals'
import type { JSX } from 'preact'
import { tick, ticks } from '../api/stream'
import { useResource, type Resource } from '../api/resource'
import type { HistoryAnswer, SystemRow } from '../api/types'
import { bytes, dateTime, percent } from '../base/format'
import { TimeChart, type ChartSeries } from '../kit/chart'
import { Card, Empty, Fact, Facts, StaleNotice, Waiting } from '../kit/parts'
import { joinPoints, knownRange, type Points } from '../kit/series'
import { Stack } from '../kit/stack'
import { DeviceBars } from './device_bars'
import { EventFeed } from './event_feed'
import { Growers } from './growers'
import { PARTS, partsOf } from './memory_parts'
import { RangeChoice, timeRange, zoom, type TimeRange } from './range'
import { SuspectList } from './suspect_list'

export function Overview(): JSX.Element {
  const system = useSystemPoints()
  return (
    <>
      <h1 class="hidden-text">Overview</h1>
      <div class="grid">
        <MemoryNow />
        <MemoryOverTime {...system} />
        <DeviceBars />
        <Pressure {...system} />
        <Growers />
        <SuspectList />
        <EventFeed />
      </div>
    </>
  )
}

const figure = (row: SystemRow, name: string): number | null => {
  const value = row[name]
  return typeof value === 'number' ? value : null
}

/** What the machine was like at the time under the chart's cursor. */
const past = signal<{ time: number; row: SystemRow } | null>(null)

function MemoryNow(): JSX.Element {
  const row = tick.value?.system
  if (row && past.value) return <MemoryThen now={row} {...past.value} />
  if (!row)
    return (
      <Card title="Memory now" span={5} class="memory-now">
        <Waiting rows={10} />
      </Card>
    )
  const total = figure(row, 'total') ?? 0
  const used = figure(row, 'used')
  const swapTotal = figure(row, 'swap_total')
  const swapFree = figure(row, 'swap_free')
  return (
    <Card
      title="Memory now"
      span={5}
      class="memory-now"
      end={
        <span class="muted">
          {swapTotal ? `swap ${bytes(swapTotal - (swapFree ?? 0))} of ${bytes(swapTotal)}` : swapTotal === 0 ? 'no swap' : ''}
        </span>
      }
    >
      <p class="big">
        {bytes(used)} <small>used of {bytes(total)}</small>
        <small class="available" data-tip="what programs can still get without swapping, as the kernel estimates">
          {bytes(figure(row, 'available'))} available
        </small>
      </p>
      <Stack label="memory of the machine" parts={partsOf(row)} total={total} />
    </Card>
  )
}

function MemoryThen({ now, time, row }: { now: SystemRow; time: number; row: SystemRow }): JSX.Element {
  const total = figure(now, 'total') ?? 0
  // A name that is not in the list now would make the card jump.
  const parts = partsOf({ ...now }).map((p) => ({ ...p, value: figure(row, p.id) }))
  return (
    <Card title={`Memory at ${dateTime(time).slice(5)}`} span={5} class="memory-now" end={<span class="muted">under the cursor</span>}>
      <p class="big">
        {bytes(figure(row, 'used'))} <small>used of {bytes(total)}</small>
        <small class="available">{bytes(figure(row, 'available'))} available</small>
      </p>
      <Stack label="memory of the machine then" parts={parts} total={total} />
    </Card>
  )
}

interface SystemPoints {
  range: TimeRange
  points: Points
  history: Resource<HistoryAnswer>
}

/** Memory and memory pressure of the machine in the range of this view: what was recorded, then what the stream adds. */
function useSystemPoints(): SystemPoints {
  const range = timeRange()
  const history = useResource<HistoryAnswer>(
    '/history',
    { what: 'system', from: range.from, to: range.to, points: 360 },
    { every: range.zoomed ? Infinity : Math.max(10_000, (range.span / 360) * 1000) },
  )
  const points = joinPoints(
    historyPoints(history.data),
    range.zoomed ? { t: [], values: {} } : livePoints(),
    range.span,
  )
  return { range, points, history }
}

function MemoryOverTime({ range, points, history }: SystemPoints): JSX.Element {
  // From the top of the stack to its bottom, as the chart draws it.
  const series: ChartSeries[] = PARTS.filter((p) => points.values[p.id]?.some((v) => v))
    .map((p) => ({ id: p.id, name: p.name, values: points.values[p.id]!, color: `--part-${p.id}`, rest: p.rest ?? false }))
    .reverse()
  const total = tick.value?.system ? figure(tick.value.system, 'total') : null
  return (
    <Card title="Memory over time" span={7} end={<RangeChoice />}>
      <StaleNotice problem={history.problem?.status === 404 ? null : history.problem} />
      <TimeChart
        label="Memory of the machine over time"
        t={points.t}
        series={series}
        stacked
        height={330}
        legend={false}
        onCursor={(at) => (past.value = at == null ? null : pointAt(points, at))}
        max={total ?? undefined}
        range={range.fixed ?? knownRange(points, range.span)}
        onZoom={zoom}
        sync="overview"
        empty={
          history.loading
            ? 'Reading…'
            : 'memoird notes the machine’s memory once a second; the first points come within ten seconds.'
        }
      />
    </Card>
  )
}

function historyPoints(answer: HistoryAnswer | null): Points {
  if (!answer) return { t: [], values: {} }
  return { t: answer.t, values: Object.fromEntries(answer.series.map((s) => [s.name, s.last])) }
}

function pointAt(points: Points, at: number): { time: number; row: SystemRow } | null {
  const time = points.t[at]
  if (time == null) return null
  return { time, row: Object.fromEntries(Object.entries(points.values).map(([name, v]) => [name, v[at] ?? null])) }
}

const LIVE_NAMES = [...PARTS.map((p) => p.id), 'used', 'available', 'pressure', 'stall']

function livePoints(): Points {
  const list = ticks.value.filter((t) => t.system)
  return {
    t: list.map((t) => Date.parse(t.time) / 1000),
    values: Object.fromEntries(LIVE_NAMES.map((name) => [name, list.map((t) => figure(t.system!, name))])),
  }
}

function Pressure({ range, points }: SystemPoints): JSX.Element {
  const row = tick.value?.system
  const measured = row && figure(row, 'pressure') != null
  const some = points.values['pressure'] ?? []
  const full = points.values['stall'] ?? []
  return (
    <Card title="Memory pressure" span={3}>
      {!row ? (
        <Waiting rows={5} />
      ) : !measured ? (
        <Empty title="Not measured">
          <span>
            The kernel of this machine does not measure pressure (PSI). The kernel parameter <code>psi=1</code> may turn it on.
          </span>
        </Empty>
      ) : (
        <>
          <Facts>
            <Fact name="some stalled" help="share of the last 10 seconds in which at least one task stalled on memory">
              {percent(figure(row, 'pressure'))} <small>{percent(figure(row, 'pressure_5m'))} in 5m</small>
            </Fact>
            <Fact name="all stalled" help="share of the last 10 seconds in which all tasks stalled on memory">
              {percent(figure(row, 'stall'))} <small>{percent(figure(row, 'stall_5m'))} in 5m</small>
            </Fact>
          </Facts>
          <TimeChart
            label="Memory pressure over time"
            t={points.t}
            kind="percent"
            height={118}
            max={Math.max(1, ...some.map((v) => v ?? 0))}
            range={range.fixed ?? knownRange(points, range.span)}
            onZoom={zoom}
            sync="overview"
            series={[
              { id: 'some', name: 'some', values: some, color: '--series-2', fill: true },
              { id: 'full', name: 'full', values: full, color: '--series-6', fill: true },
            ]}
            legend={false}
          />
        </>
      )}
    </Card>
  )
}
