// The page's few pictures, drawn on a field of 16 × 16 in the colour of the text.
import type { JSX } from 'preact'

const PATHS = {
  overview: 'M2 13.5h12M3.5 11V7M7 11V3M10.5 11V8.5M13.5 11V5',
  processes: 'M2 4h12M2 8h12M2 12h12',
  devices: 'M4.5 4.5h7v7h-7zM6.5 1.5v3M9.5 1.5v3M6.5 11.5v3M9.5 11.5v3M1.5 6.5h3M1.5 9.5h3M11.5 6.5h3M11.5 9.5h3',
  leaks: 'M8 2c2.6 3 4 4.9 4 7a4 4 0 0 1-8 0c0-2.1 1.4-4 4-7z',
  containers: 'M8 1.8 13.5 4.8v6.4L8 14.2 2.5 11.2V4.8zM2.5 4.8 8 7.8l5.5-3M8 7.8v6.4',
  cluster: 'M8 1.5a2 2 0 1 1 0 4a2 2 0 0 1 0-4zM3.500 10.500a2 2 0 1 1 0 4a2 2 0 0 1 0-4zM12.500 10.500a2 2 0 1 1 0 4a2 2 0 0 1 0-4zM7 5.400 4.500 10.700M9 5.400l2.500 5.300M5.500 12.500h5',
  self: 'M1.5 8.5h3l1.5-5 3 9 1.8-5h3.7',
  close: 'M4 4l8 8M12 4l-8 8',
  sun: 'M8 5a3 3 0 1 1 0 6a3 3 0 0 1 0-6zM8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1.1 1.1M11.9 11.9 13 13M13 3l-1.1 1.1M4.1 11.9 3 13',
  moon: 'M13.5 9.5A6 6 0 0 1 6.5 2.5a6 6 0 1 0 7 7z',
  system: 'M2 3h12v8H2zM6 14h4M8 11v3',
  help: 'M6 6a2 2 0 1 1 2.8 1.850c-.5.25-.8.65-.8 1.150v.5M8 12v.2',
  columns: 'M2 3h12v10H2zM6 3v10M10 3v10',
  search: 'M7 2.5a4.5 4.5 0 1 1 0 9a4.5 4.5 0 0 1 0-9zM10.3 10.3 14 14',
  right: 'M6 3.5 10.5 8 6 12.5',
  back: 'M10 3.5 5.5 8l4.5 4.5',
  download: 'M8 2v8M4.5 7 8 10.5 11.5 7M2.5 13.5h11',
  play: 'M5 3.5v9l7-4.5z',
  stop: 'M4 4h8v8H4z',
} as const

export type IconName = keyof typeof PATHS

export function Icon({ name }: { name: IconName }): JSX.Element {
  return (
    <svg viewBox="0 0 16 16" fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  )
}
