// Rows of the tables `devices` and `accounts` as the screen shows them: devices with their memories, and who holds them.

export type Row = Record<string, unknown>

export interface Space {
  name: string // as the table calls it
  title: string
  used: number
  capacity: number | null
  disputed: boolean // users claim different capacities
  blocks: number
  parts: Space[] // of a memory that several kinds share
}

export interface Owner {
  pid: number
  program: string
  user: string | null
  bytes: number
  blocks: number
}

/** What the driver itself counts (NVIDIA); a figure that it does not tell is null. */
export interface Driver {
  used: number | null
  reserved: number | null
  unattributed: number | null // of used, what is not accounted
  capacity: number | null
}

/** A process on a device as the driver counts it; pid and program are null for one of another PID namespace. */
export interface DriverProcess {
  pid: number | null
  driverPid: number
  program: string | null
  user: string | null
  bytes: number | null
  accounted: number | null // null: it keeps no book
}

export interface Device {
  id: string // identity: what links and questions use
  ordinal: number | null
  name: string
  bus: string | null
  kind: string | null
  processes: number
  used: number
  driver: Driver | null // null: nothing is known
  spaces: Space[]
}

const TITLES: Record<string, string> = {
  dram: 'DRAM',
  l1: 'buffers',
  cb: 'circular buffers',
  kernel: 'kernels',
  l1_small: 'small buffers',
  trace: 'traces',
  system: 'host memory of the device',
}

/** These share one on-chip memory, whose size is told for l1: that is what runs out. */
const ON_CHIP = ['l1', 'cb', 'kernel', 'l1_small']

const figure = (value: unknown): number => (typeof value === 'number' ? value : 0)
const figureOrNull = (value: unknown): number | null => (typeof value === 'number' && value > 0 ? value : null)
const text = (value: unknown): string | null => (typeof value === 'string' && value !== '' ? value : null)

export function rowsOf(answer: { columns: { name: string }[]; rows: unknown[] }): Row[] {
  return answer.rows.map((row) =>
    Array.isArray(row) ? Object.fromEntries(answer.columns.map((column, i) => [column.name, row[i]])) : (row as Row),
  )
}

export const spaceTitle = (name: string): string => TITLES[name] ?? name

/** The identity of the device of a row: its uid, else its bus address and node. Its number is a process's own and names nothing. */
export const deviceKey = (row: Row): string => text(row['device_id']) ?? 'device'

export function devicesOf(rows: Row[]): Device[] {
  const devices = new Map<string, Device>()
  for (const row of rows) {
    if (row['device'] === 'host') continue
    const id = deviceKey(row)
    let device = devices.get(id)
    if (!device) {
      device = {
        id,
        ordinal: typeof row['ordinal'] === 'number' ? row['ordinal'] : null,
        name: text(row['device_name']) ?? String(row['device'] ?? 'device'),
        bus: text(row['device_bus']),
        kind: text(row['device_kind']),
        processes: 0,
        used: 0,
        driver: null,
        spaces: [],
      }
      devices.set(id, device)
    }
    const name = String(row['space'] ?? '?')
    if (name === 'dram') device.driver = driverOf(row)
    device.processes = Math.max(device.processes, figure(row['processes']))
    if (name !== 'system') device.used += figure(row['used'])
    device.spaces.push({
      name,
      title: spaceTitle(name),
      used: figure(row['used']),
      capacity: figureOrNull(row['capacity']),
      disputed: row['disputed'] === true,
      blocks: figure(row['blocks']),
      parts: [],
    })
  }
  const all = [...devices.values()]
  for (const device of all) device.spaces = joinOnChip(device.spaces)
  return all.sort((a, b) => (a.ordinal ?? Infinity) - (b.ordinal ?? Infinity) || (a.name < b.name ? -1 : 1))
}

const told = (value: unknown): number | null => (typeof value === 'number' ? value : null)

function driverOf(row: Row): Driver | null {
  const driver = {
    used: told(row['driver.used']),
    reserved: told(row['driver.reserved']),
    unattributed: told(row['unattributed']),
    capacity: row['confirmed'] === true ? figureOrNull(row['capacity']) : null,
  }
  return driver.used === null && driver.capacity === null ? null : driver
}

/** Rows of `device_processes` of one device, the largest first; those of unknown size come last. */
export function driverProcessesOf(rows: Row[], id: string): DriverProcess[] {
  return rows
    .filter((row) => deviceKey(row) === id)
    .map((row) => ({
      pid: told(row['pid']),
      driverPid: figure(row['driver_pid']),
      program: text(row['program']),
      user: text(row['user']),
      bytes: told(row['driver']),
      accounted: told(row['accounted']),
    }))
    .sort((a, b) => (b.bytes ?? -1) - (a.bytes ?? -1) || a.driverPid - b.driverPid)
}

function joinOnChip(spaces: Space[]): Space[] {
  const parts = ON_CHIP.flatMap((name) => spaces.filter((space) => space.name === name))
  const others = spaces.filter((space) => !ON_CHIP.includes(space.name))
  others.sort((a, b) => Number(b.name === 'dram') - Number(a.name === 'dram') || (a.name < b.name ? -1 : 1))
  if (!parts.length) return others
  const sum = (of: (space: Space) => number): number => parts.reduce((total, space) => total + of(space), 0)
  const whole: Space = {
    name: 'l1',
    title: parts.length > 1 ? 'L1, on chip' : 'L1',
    used: sum((space) => space.used),
    capacity: parts.find((space) => space.name === 'l1')?.capacity ?? null,
    disputed: parts.some((space) => space.name === 'l1' && space.disputed),
    blocks: sum((space) => space.blocks),
    parts: parts.length > 1 ? parts : [],
  }
  const at = others.findIndex((space) => space.name !== 'dram')
  others.splice(at < 0 ? others.length : at, 0, whole)
  return others
}

/** The names of the table's spaces that a memory of the screen stands for. */
export const spaceNames = (space: Space): string[] =>
  space.parts.length ? space.parts.map((part) => part.name) : [space.name]

/** Rows of `accounts` by process, the largest first. */
export function ownersOf(rows: Row[], uid: string, spaces: string[]): Owner[] {
  const owners = new Map<number, Owner>()
  for (const row of rows) {
    if (deviceKey(row) !== uid || !spaces.includes(String(row['space']))) continue
    const pid = figure(row['pid'])
    const owner = owners.get(pid) ?? {
      pid,
      program: text(row['program']) ?? '?',
      user: text(row['user']),
      bytes: 0,
      blocks: 0,
    }
    owner.bytes += figure(row['bytes'])
    owner.blocks += figure(row['blocks'])
    owners.set(pid, owner)
  }
  return [...owners.values()].filter((owner) => owner.bytes > 0).sort((a, b) => b.bytes - a.bytes || a.pid - b.pid)
}

/** 0 calm, 1 from 75 percent on, 2 from 90: where the bars of the command line change their colour, too. */
export function fullness(used: number, capacity: number | null): 'ok' | 'warn' | 'bad' {
  const part = capacity ? used / capacity : 0
  return part >= 0.9 ? 'bad' : part >= 0.75 ? 'warn' : 'ok'
}

/** How full the fullest memory is, by the accounts or by the driver, for the order of attention. */
export const fullest = (device: Device): number =>
  Math.max(
    0,
    device.driver?.capacity ? (device.driver.used ?? 0) / device.driver.capacity : 0,
    ...device.spaces.map((space) => (space.capacity ? space.used / space.capacity : 0)),
  )
