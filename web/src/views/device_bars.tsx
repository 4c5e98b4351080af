// Devices of the machine on the overview: each of their memories as a bar.
import type { JSX } from 'preact'
import { tick } from '../api/stream'
import { bytes } from '../base/format'
import { link } from '../base/route'
import { Card, Empty, Meter, Waiting } from '../kit/parts'
import { devicesOf, type Device, type Space } from './device_model'

export function DeviceBars(): JSX.Element {
  const rows = tick.value?.devices
  const devices = devicesOf(rows ?? [])
  return (
    <Card title={<a href={link('devices')}>Devices</a>} span={4}>
      {!rows ? (
        <Waiting rows={5} />
      ) : devices.length === 0 ? (
        <Empty title="No device has been told of yet">
          <span>
            Programs tell of device memory by libmemoir, and Tenstorrent programs by themselves. To see it with made-up devices: <code>memoir demo</code>
          </span>
        </Empty>
      ) : (
        <ul class="device-bars">
          {devices.map((device) => (
            <li key={device.id}>
              <a class="clip" href={link(`devices/${device.id}`)}>
                {device.ordinal} {device.name}
              </a>
              <ul>
                {device.spaces.map((space) => (
                  <Bar key={space.name} device={device} space={space} />
                ))}
              </ul>
            </li>
          ))}
        </ul>
      )}
    </Card>
  )
}

function Bar({ device, space }: { device: Device; space: Space }): JSX.Element {
  const { used, capacity } = space
  return (
    <li class="space-bar">
      <span class="muted clip">{space.title}</span>
      {capacity ? <Meter share={used / capacity} label={`${device.name}, ${space.title}`} /> : <span />}
      <span class="num">
        {bytes(used)}
        <span class="muted"> {capacity ? `/ ${bytes(capacity)}` : ''}</span>
      </span>
    </li>
  )
}
