import type { JSX } from 'preact'
import { ViewHead } from '../kit/parts'
export function Overview(): JSX.Element {
  return <ViewHead title="Overview" />
}
