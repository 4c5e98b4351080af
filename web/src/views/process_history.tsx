// The history of one process: charts under one cursor. A drag zooms all of them; the range is in the address.
import type { JSX } from 'preact'
import { useResource } from '../api/resource'
import type { HistoryAnswer } from '../api/types'
import { TimeChart } from '../kit/chart'
import { Card, Empty, ProblemBox, StaleNotice, Waiting } from '../kit/parts'
import { everyMs, groupsOf, isMeasured, seriesName, shownRange } from './history_model'
import { RangeChoice, timeRange, zoom } from './range'

const POINTS = 400

export function History({ pid, start }: { pid: number; start: number | null }): JSX.Element {
  const range = timeRange('10m')
  const { data, problem } = useResource<HistoryAnswer>(
    '/history',
    { what: 'process', pid, start, from: range.from, to: range.to, points: POINTS },
    { every: everyMs(range.span, range.zoomed) },
  )
  if (!data) return problem ? <ProblemBox problem={problem} /> : <Waiting rows={8} />
  const groups = groupsOf(data)
  return (
    <>
      <div class="tab-tools">
        <RangeChoice otherwise="10m" />
        <span class="muted end">Drag in a chart to zoom in.</span>
      </div>
      <StaleNotice problem={problem} />
      {groups.length === 0 && (
        <Empty title="Nothing was noted in this time">
          <span>
            memoird notes the largest processes and all that are tracked, every second, and writes it down every ten. A
            new process appears in a moment.
          </span>
        </Empty>
      )}
      <div class="grid">
        {groups.map((group) => (
          <Card key={group.id} title={group.title} span={groups.length > 1 ? 6 : 12}>
            <TimeChart
              label={group.title}
              t={data.t}
              kind={group.kind}
              series={group.series.map((series, i) => ({
                id: `${series.device_id ?? ''} ${series.name}`,
                name: seriesName(series.name),
                measured: isMeasured(series.name),
                values: series.last,
                color: `--series-${(i % 8) + 1}`,
                fill: i === 0,
              }))}
              sync={`process-${pid}`}
              range={range.fixed ?? shownRange(data)}
              height={190}
              onZoom={zoom}
            />
          </Card>
        ))}
      </div>
    </>
  )
}
