// Devices: how full each memory of each accelerator is, who holds it, and behind each its blocks, its map and its history.
import type { JSX } from 'preact'
import { useMemo } from 'preact/hooks'
import { useResource } from '../api/resource'
import { tick } from '../api/stream'
import type { Traced } from '../api/schema'
import type { TableAnswer } from '../api/types'
import { bytes, count, percent } from '../base/format'
import { link, place } from '../base/route'
import { later } from '../kit/later'
import { Card, Empty, Meter, ProblemBox, StaleNotice, ViewHead, Waiting } from '../kit/parts'
import { Stack } from '../kit/stack'
import {
  devicesOf,
  driverProcessesOf,
  ownersOf,
  rowsOf,
  spaceNames,
  type Device,
  type Driver,
  type DriverProcess,
  type Owner,
  type Row,
  type Space,
} from './device_model'
import { transfersOf } from './trace_model'

const OWNERS_SHOWN = 7

const DeviceDetail = later(() => import('./device_detail').then((module) => module.DeviceDetail))

export function Devices(): JSX.Element {
  const devices = useResource<TableAnswer>('/devices', { shape: 'arrays' })
  const accounts = useResource<TableAnswer>('/accounts', {
    where: 'device!=host',
    show: 'pid,program,user,device,device_id,space,bytes,blocks',
    shape: 'arrays',
  })
  const onDevices = useResource<TableAnswer>('/device_processes', { shape: 'arrays' })
  const traced = useResource<Traced>('/traced', {}, { every: 2000 })
  const id = place.value.parts.slice(1).join('/')
  const list = useMemo(() => (devices.data ? devicesOf(rowsOf(devices.data)) : []), [devices.data])
  const owners = useMemo(() => (accounts.data ? rowsOf(accounts.data) : []), [accounts.data])
  const driven = useMemo(() => (onDevices.data ? rowsOf(onDevices.data) : []), [onDevices.data])

  if (!devices.data) return devices.problem ? <ProblemBox problem={devices.problem} middle /> : <Waiting rows={8} />
  if (id) {
    const chosen = list.find((device) => device.id === id)
    if (chosen) return <DeviceDetail device={chosen} accounts={owners} driven={driven} traced={traced.data} />
    return (
      <Empty title="This device is not here" middle>
        <span>No program reports memory on it at present. It appears when one does.</span>
        <a class="button" href={link('devices')}>
          All devices
        </a>
      </Empty>
    )
  }
  const held = list.reduce((sum, device) => sum + Math.max(device.used, device.driver?.used ?? 0), 0)
  return (
    <>
      <ViewHead
        title="Devices"
        sub={
          list.length ? `${count(list.length)} ${list.length === 1 ? 'device' : 'devices'}, ${bytes(held)} in use` : ''
        }
      />
      <StaleNotice problem={devices.problem} />
      {list.length === 0 ? (
        <Nothing />
      ) : (
        <div class="grid">
          {list.map((device) => (
            <DeviceCard
              key={device.id}
              device={device}
              accounts={owners}
              driven={driven}
              traced={traced.data}
              wide={list.length === 1}
            />
          ))}
        </div>
      )}
    </>
  )
}

function Nothing(): JSX.Element {
  return (
    <Empty title="No accelerator memory is reported" middle>
      <span>
        Devices appear when a program reports what it holds on one (by libmemoir, over the sockets of memoird, or from
        tt-metal), and NVIDIA devices when their driver is loaded.
      </span>
      <span>To see how it looks, run the demo on two simulated devices:</span>
      <pre>memoir demo</pre>
      {tick.value && <span>{count(tick.value.processes)} processes are watched in the meantime.</span>}
    </Empty>
  )
}

function DeviceCard({
  device,
  accounts,
  driven,
  traced,
  wide,
}: {
  device: Device
  accounts: Row[]
  driven: Row[]
  traced: Traced | null
  wide: boolean
}): JSX.Element {
  return (
    <Card
      span={wide ? 12 : 6}
      class="device"
      title={<a href={link(`devices/${device.id}`)}>{deviceTitle(device)}</a>}
      end={<span class="muted">{[device.kind, device.bus].filter(Boolean).join(' · ')}</span>}
    >
      {device.spaces.map((space) => (
        <SpaceBlock
          key={space.name}
          device={device}
          space={space}
          owners={ownersOf(accounts, device.id, spaceNames(space))}
        />
      ))}
      {device.driver && (
        <DriverBlock device={device} driver={device.driver} processes={driverProcessesOf(driven, device.id)} />
      )}
      <TransferBlock device={device} accounts={accounts} traced={traced} />
    </Card>
  )
}

/** "3.8 GB of 150.8 GB, 2.5 %" as the driver counts. */
function driverText(driver: Driver): string {
  if (driver.used === null) return 'not known'
  if (driver.capacity === null) return bytes(driver.used)
  return `${bytes(driver.used)} of ${bytes(driver.capacity)}, ${percent((100 * driver.used) / driver.capacity)}`
}

/** What the driver counts, and for whom: also processes that keep no book. */
export function DriverBlock({
  device,
  driver,
  processes,
}: {
  device: Device
  driver: Driver
  processes: DriverProcess[]
}): JSX.Element {
  const shown = processes.slice(0, OWNERS_SHOWN)
  return (
    <div class="space">
      <div class="spread">
        <span class="space-name">By the driver</span>
        <span class="muted">
          {driver.unattributed === null ? '' : `${bytes(driver.unattributed)} unattributed`}
          {driver.reserved ? ` · ${bytes(driver.reserved)} more reserved` : ''}
        </span>
        <span class="num grow">{driverText(driver)}</span>
      </div>
      {driver.used !== null && driver.capacity !== null && (
        <Meter share={driver.used / driver.capacity} label={`${device.name} by the driver`} />
      )}
      {shown.length > 0 && (
        <ul class="owners" aria-label={`processes on ${device.name} by the driver`}>
          {shown.map((process) => (
            <li key={process.driverPid}>
              {process.pid === null ? (
                <span class="muted">another namespace</span>
              ) : (
                <a href={link(`process/${process.pid}`)}>{process.program}</a>
              )}{' '}
              <span class="faint">{process.driverPid}</span> {process.bytes === null ? '?' : bytes(process.bytes)}
              {process.accounted === null && <span class="muted"> no book</span>}
            </li>
          ))}
          {processes.length > shown.length && <li class="muted">{count(processes.length - shown.length)} more</li>}
        </ul>
      )}
    </div>
  )
}

/** What the traced processes on a device copy. The figures are of a whole process: one that uses several devices is named on each. */
export function TransferBlock({
  device,
  accounts,
  traced,
}: {
  device: Device
  accounts: Row[]
  traced: Traced | null
}): JSX.Element | null {
  const owners = ownersOf(accounts, device.id, device.spaces.flatMap(spaceNames))
  const transfers = transfersOf(traced?.processes ?? [], new Set(owners.map((owner) => owner.pid)))
  if (!transfers.length) return null
  const shown = transfers.slice(0, OWNERS_SHOWN)
  return (
    <div class="space transfers">
      <div class="spread">
        <span class="space-name">Transfers</span>
        <span class="muted">of traced programs, since each is traced</span>
      </div>
      <ul class="owners" aria-label={`transfers of programs on ${device.name}`}>
        {shown.map((t) => (
          <li key={t.pid}>
            <a href={link(`process/${t.pid}`, { tab: 'cuda' })}>{t.program}</a> <span class="faint">{t.pid}</span>{' '}
            {t.off ? (
              <span class="muted">tracing is switched off</span>
            ) : (
              <>
                {bytes(t.to.bytes)} <span class="muted">to,</span> {bytes(t.from.bytes)} <span class="muted">from</span>
              </>
            )}
            {t.lost > 0 && <span class="muted"> {count(t.lost)} lost</span>}
          </li>
        ))}
        {transfers.length > shown.length && <li class="muted">{count(transfers.length - shown.length)} more</li>}
      </ul>
    </div>
  )
}

export const deviceTitle = (device: Device): string =>
  device.ordinal === null ? device.name : `${device.ordinal} ${device.name}`

export const spaceLink = (device: Device, space: Space): string => link(`devices/${device.id}`, { space: space.name })

/** "7.0 GB of 12.9 GB, 54.6 %" */
export function fillText(space: Space): string {
  if (space.capacity === null) return `${bytes(space.used)}, ${space.disputed ? 'capacity disputed' : 'capacity unknown'}`
  const share = percent((100 * space.used) / space.capacity)
  return `${bytes(space.used)} of ${bytes(space.capacity)}, ${share}${space.disputed ? ', capacity disputed' : ''}`
}

function SpaceBlock({ device, space, owners }: { device: Device; space: Space; owners: Owner[] }): JSX.Element {
  return (
    <div class="space">
      <div class="spread">
        <a class="space-name" href={spaceLink(device, space)}>
          {space.title}
        </a>
        <span class="muted">{count(space.blocks)} blocks</span>
        <span class="num grow">{fillText(space)}</span>
      </div>
      <SpaceBar device={device} space={space} />
      <OwnerList owners={owners} total={space.used} label={`holders of ${space.title}`} />
    </div>
  )
}

/** How full it is. Where kinds of blocks share a memory, each has its part of the bar. */
export function SpaceBar({ device, space }: { device: Device; space: Space }): JSX.Element | null {
  const label = `${space.title} of ${device.name}`
  if (!space.parts.length)
    return space.capacity === null ? null : <Meter share={space.used / space.capacity} label={label} />
  const parts = space.parts.map((part, i) => ({
    id: part.name,
    name: part.title,
    value: part.used,
    color: `var(--series-${i + 1})`,
  }))
  return (
    <>
      <Stack label={label} total={space.capacity ?? space.used} thin parts={parts} />
      <ul class="parts">
        {parts.map((part) => (
          <li key={part.id}>
            <span class="swatch" style={{ backgroundColor: part.color }} />
            <span class="muted">{part.name}</span> {bytes(part.value)}
          </li>
        ))}
      </ul>
    </>
  )
}

export function OwnerList({
  owners,
  total,
  label,
}: {
  owners: Owner[]
  total: number
  label: string
}): JSX.Element | null {
  if (!owners.length) return null
  const shown = owners.slice(0, OWNERS_SHOWN)
  const rest = owners.slice(OWNERS_SHOWN)
  return (
    <ul class="owners" aria-label={label}>
      {shown.map((owner) => (
        <li key={owner.pid}>
          <a href={link(`process/${owner.pid}`)}>{owner.program}</a> <span class="faint">{owner.pid}</span>{' '}
          {bytes(owner.bytes)}
          <span class="muted"> {total > 0 ? percent((100 * owner.bytes) / total) : ''}</span>
        </li>
      ))}
      {rest.length > 0 && (
        <li class="muted">
          {count(rest.length)} more, {bytes(rest.reduce((sum, owner) => sum + owner.bytes, 0))}
        </li>
      )}
    </ul>
  )
}
