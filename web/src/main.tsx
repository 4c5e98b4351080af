import { render } from 'preact'
import 'uplot/dist/uPlot.min.css'
import '../style/main.css'
import { startStream } from './api/stream'
import { App } from './app'
import { startKeys } from './base/keys'
import { startRouting } from './base/route'
import { startTips } from './kit/tip'

startRouting()
startKeys()
startTips()
startStream()
render(<App />, document.getElementById('app')!)
