// Devices of the machine, each kind of memory as a bar.
import type { JSX } from 'preact'
import { tick } from '../api/stream'
import type { DeviceRow } from '../api/types'
import { bytes } from '../base/format'
import { link } from '../base/route'
import { Card, Empty, Meter, Waiting } from '../kit/parts'

const num = (value: unknown): number | null => (typeof value === 'number' ? value : null)

/** What has a size first, then what holds the most. */
const bySize = (a: DeviceRow, b: DeviceRow): number =>
  (num(b['capacity']) ?? 0) - (num(a['capacity']) ?? 0) || (num(b['used']) ?? 0) - (num(a['used']) ?? 0)

export function DeviceBars(): JSX.Element {
  const rows = tick.value?.devices
  const devices = new Map<string, DeviceRow[]>()
  for (const row of rows ?? []) {
    const name = String(row['device'] ?? '')
    if (name !== 'host') devices.set(name, [...(devices.get(name) ?? []), row])
  }
  return (
    <Card title={<a href={link('devices')}>Devices</a>} span={4}>
      {!rows ? (
        <Waiting rows={5} />
      ) : devices.size === 0 ? (
        <Empty title="No device has been told of yet">
          <span>
            Programs tell of device memory by libmemoir, and Tenstorrent programs by themselves. To see it with made-up devices: <code>memoir demo</code>
          </span>
        </Empty>
      ) : (
        <ul class="device-bars">
          {[...devices].map(([name, spaces]) => (
            <li key={name}>
              <a class="clip" href={link('devices', { device: name })}>
                {name}
              </a>
              <ul>
                {spaces.sort(bySize).map((row) => (
                  <Space key={String(row['space'])} row={row} />
                ))}
              </ul>
            </li>
          ))}
        </ul>
      )}
    </Card>
  )
}

function Space({ row }: { row: DeviceRow }): JSX.Element {
  const used = num(row['used'])
  const capacity = num(row['capacity'])
  const space = String(row['space'])
  return (
    <li class="space-bar">
      <span class="muted clip">{space}</span>
      {capacity ? <Meter share={used == null ? null : used / capacity} label={`${String(row['device'])}, ${space}`} /> : <span />}
      <span class="num">
        {bytes(used)}
        <span class="muted"> {capacity ? `/ ${bytes(capacity)}` : ''}</span>
      </span>
    </li>
  )
}
