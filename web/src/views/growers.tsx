// Who grew the most during the last seconds, with the way there.
import type { JSX } from 'preact'
import { tick, ticks } from '../api/stream'
import type { Grower } from '../api/types'
import { bytes, rate } from '../base/format'
import { link } from '../base/route'
import { Card, Empty, Waiting } from '../kit/parts'
import { Spark } from '../kit/spark'

export function Growers(): JSX.Element {
  const now = tick.value
  const list = now?.growers
  return (
    <Card title={<a href={link('processes', { sort: '-rate' })}>Top growers</a>} span={5} end={<span class="muted">last 10 seconds</span>}>
      {!now ? (
        <Waiting rows={5} />
      ) : !list ? (
        <Empty title="Not known yet">
          <span>Growth is measured over ten seconds.</span>
        </Empty>
      ) : list.length === 0 ? (
        <Empty title="Nothing grows">
          <span>No process took more memory during the last ten seconds than it gave back.</span>
        </Empty>
      ) : (
        <ul class="lines growers">
          {list.slice(0, 8).map((grower) => (
            <Line key={grower.pid} grower={grower} />
          ))}
        </ul>
      )}
    </Card>
  )
}

/** What the ticks of the last minute said of it. */
function past(pid: number): (number | null)[] {
  return ticks.value.slice(-60).map((t) => t.growers?.find((g) => g.pid === pid)?.rss ?? null)
}

function Line({ grower }: { grower: Grower }): JSX.Element {
  return (
    <li>
      <a class="grower" href={link(`process/${grower.pid}`)}>
        <span class="clip">{grower.program}</span> <span class="muted">{grower.pid}</span>
      </a>
      <Spark label={`resident memory of ${grower.program} during the last minute`} values={past(grower.pid)} height={18} />
      <span class="num muted">{bytes(grower.rss)}</span>
      <span class="num rate">{rate(grower.growth)}</span>
    </li>
  )
}
