import type { JSX } from 'preact'
import { ViewHead } from '../kit/parts'
export function Processes(): JSX.Element {
  return <ViewHead title="Processes" />
}
