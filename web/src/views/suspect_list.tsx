// The first suspects of the leak detector; all of them are on their own screen.
import type { JSX } from 'preact'
import { useResource } from '../api/resource'
import type { LeaksAnswer, Suspect, SuspectsAnswer } from '../api/types'
import { bytes, duration, perMinute } from '../base/format'
import { link } from '../base/route'
import { evenly } from '../draw/trend'
import { Badge, Card, Empty, ProblemBox, Waiting } from '../kit/parts'
import { Spark } from '../kit/spark'
import { siteName, sitePlace, suspectsOf, worstOfEach } from './suspect_model'

const LINES_MAX = 6 // the worst of each process; the rest is on the screen of leaks

export function SuspectList(): JSX.Element {
  const { data: told, problem } = useResource<LeaksAnswer>('/leaks', {}, { every: 5000 })
  const data = suspectsOf(told)
  return (
    <Card title={<a href={link('leaks')}>Suspects</a>} span={6} end={data && <span class="muted">{data.watched} places in the code watched</span>}>
      {!data ? (
        problem ? <ProblemBox problem={problem} /> : <Waiting rows={3} />
      ) : data.suspects.length === 0 ? (
        <Nothing data={data} />
      ) : (
        <ul class="lines suspects">
          {worstOfEach(data.suspects)
            .slice(0, LINES_MAX)
            .map(({ suspect, more }) => (
              <Line key={suspect.pid} suspect={suspect} more={more} />
            ))}
        </ul>
      )}
      {data && data.stopped.length > 0 && (
        <a class="muted" href={link('leaks')}>
          {data.stopped.length} found before, no longer growing
        </a>
      )}
    </Card>
  )
}

function Nothing({ data }: { data: SuspectsAnswer }): JSX.Element {
  if (data.watched > 0)
    return (
      <Empty title={data.ready ? 'Nothing leaks' : 'Still watching'}>
        <span>
          {data.ready
            ? `${data.watched} places in the code of tracked programs are watched, and none of them grows.`
            : 'A verdict takes about half a minute: a program that fills its caches at first has no leak.'}
        </span>
      </Empty>
    )
  if (data.looks < 2)
    return (
      <Empty title="Not known yet">
        <span>memoird has just started and reads what programs account.</span>
      </Empty>
    )
  if (data.books > 0)
    return (
      <Empty title="Nothing to watch yet">
        <span>No place in the code of tracked programs holds 64 kB.</span>
      </Empty>
    )
  return (
    <Empty title="No program is tracked">
      <span>
        Start one with <code>memoir run PROGRAM</code>, and memoird watches each place in its code that allocates. The demo has a leak to look at:{' '}
        <code>memoir demo</code>
      </span>
    </Empty>
  )
}

function Line({ suspect, more }: { suspect: Suspect; more: number }): JSX.Element {
  const { site } = suspect
  const where = site?.function ? siteName(site) : sitePlace(site) || site?.text || 'unknown place'
  const beside = site?.function ? sitePlace(site) : ''
  return (
    <li>
      <Badge tone={suspect.level === 'leak' ? 'bad' : 'warn'} tip={suspect.why.join('\n')}>
        {suspect.level}
      </Badge>
      <a class="clip" href={link(`process/${suspect.pid}`, { tab: 'leaks' })} title={`${[where, beside].filter(Boolean).join(' ')}, ${suspect.program} (PID ${suspect.pid})`}>
        <span class="mono">{where}</span>{' '}
        <span class="muted">
          {beside} in {suspect.program} {suspect.pid}
          {more > 0 && `, and ${more} more`}
        </span>
      </a>
      {suspect.series ? <Spark label={`live bytes of ${where}`} values={evenly(suspect.series.t, suspect.series.bytes)} tone="bad" height={18} /> : <span />}
      <span class="num muted">{bytes(suspect.live_bytes)}</span>
      <span class="num rate" data-tip={suspect.limit ? `reaches the limit of its ${suspect.limit.what}, ${bytes(suspect.limit.bytes)}` : undefined}>
        {suspect.limit ? `full in ${duration(suspect.limit.in_s)}` : perMinute(suspect.rate)}
      </span>
    </li>
  )
}
