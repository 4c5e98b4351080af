// The screens, in the order of the navigation: one line each.
import { later } from '../kit/later'
import type { ComponentType } from 'preact'
import type { IconName } from '../kit/icon'
import { Devices } from './devices'
import { Leaks } from './leaks'
import { Overview } from './overview'
import { Process } from './process'
import { Processes } from './processes'

const Cluster = later(() => import('./cluster').then((module) => module.Cluster))
const Containers = later(() => import('./containers').then((module) => module.Containers))
const Self = later(() => import('./self').then((module) => module.Self))

export interface Screen {
  id: string
  title: string
  view: ComponentType
  /** In the navigation, with this picture. */
  icon?: IconName
  /** After g. */
  key?: string
  /** Fills the window and scrolls by itself. */
  whole?: boolean
  /** Screens that belong to it. */
  also?: string[]
}

export const SCREENS: Screen[] = [
  { id: 'overview', title: 'Overview', view: Overview, icon: 'overview', key: 'o' },
  { id: 'processes', title: 'Processes', view: Processes, icon: 'processes', key: 'p', whole: true, also: ['process'] },
  { id: 'process', title: 'Process', view: Process },
  { id: 'devices', title: 'Devices', view: Devices, icon: 'devices', key: 'd' },
  { id: 'leaks', title: 'Leaks', view: Leaks, icon: 'leaks', key: 'l' },
  { id: 'containers', title: 'Containers', view: Containers, icon: 'containers', key: 'c', whole: true },
  { id: 'cluster', title: 'Cluster', view: Cluster, icon: 'cluster', key: 'n' },
  { id: 'self', title: 'Memoir itself', view: Self, icon: 'self', key: 's' },
]

export const screenOf = (id: string): Screen | undefined => SCREENS.find((s) => s.id === id)
