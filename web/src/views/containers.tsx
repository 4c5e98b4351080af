import type { JSX } from 'preact'
import { ViewHead } from '../kit/parts'
export function Containers(): JSX.Element {
  return <ViewHead title="Containers" />
}
