// memoird about itself: what it costs, how late it is, what it lost. A monitor that hides its own share is not to be trusted.
import type { JSX } from 'preact'
import { useResource } from '../api/resource'
import type { HistoryAnswer, SelfAnswer } from '../api/types'
import { TimeChart } from '../kit/chart'
import { Badge, Card, Empty, Fact, Facts, ProblemBox, StaleNotice, ViewHead, Waiting } from '../kit/parts'
import { figureGroups, type FigureGroup } from './figures'
import { RangeChoice, timeRange, zoom } from './range'

const LOSS = /loss|lost/

export function Self(): JSX.Element {
  const { data, problem } = useResource<SelfAnswer>('/self')
  if (!data) return problem ? <ProblemBox problem={problem} middle /> : <Waiting rows={10} />
  const [own, ...groups] = figureGroups(data, 'Process')
  const pid = typeof data['pid'] === 'number' ? data['pid'] : null
  const losses = groups.filter((g) => LOSS.test(g.name))
  const others = groups.filter((g) => !LOSS.test(g.name))
  return (
    <>
      <ViewHead title="Memoir itself" sub="what memoird takes, how late it is, and what it could not account" end={<RangeChoice />} />
      <StaleNotice problem={problem} />
      <div class="grid">
        <Card title="Process" span={5}>
          <Figures group={own!} />
        </Card>
        <Card title="Memory of memoird" span={7}>
          {pid != null && <OwnMemory pid={pid} />}
        </Card>
        {losses.map((group) => (
          <Losses key={group.name} group={group} />
        ))}
        {others.map((group) => (
          <Card key={group.name} title={capital(group.name)} span={group.figures.length > 8 ? 8 : 4}>
            <Figures group={group} />
          </Card>
        ))}
      </div>
    </>
  )
}

const capital = (text: string): string => text.slice(0, 1).toUpperCase() + text.slice(1)

function Figures({ group }: { group: FigureGroup }): JSX.Element {
  return (
    <Facts>
      {group.figures.map((figure) => (
        <Fact key={figure.name} name={figure.name}>
          {figure.text}
        </Fact>
      ))}
    </Facts>
  )
}

function Losses({ group }: { group: FigureGroup }): JSX.Element {
  const some = group.figures.filter((f) => (f.value ?? 0) > 0)
  return (
    <Card title={capital(group.name)} span={12} end={<Badge tone={some.length ? 'bad' : 'good'}>{some.length ? `${some.length} kinds` : 'none'}</Badge>}>
      {some.length === 0 ? (
        <Empty title="Nothing was lost">
          <span>{group.figures.length} kinds of loss are counted, from full queues to books that could not be read. All are at zero.</span>
        </Empty>
      ) : (
        <Figures group={{ ...group, figures: some }} />
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
  return (
    <TimeChart
      label="Resident memory of memoird"
      t={history.data?.t ?? []}
      series={series.map((s, i) => ({ id: s.name, name: s.name, values: s.last, color: colors[i]!, fill: i === 0 }))}
      height={190}
      range={range.fixed}
      onZoom={zoom}
      empty={history.loading ? 'Reading…' : 'memoird is too small to be among the processes whose history is kept.'}
    />
  )
}
