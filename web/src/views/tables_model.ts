/** Rows of ages become rows of sizes. */
export function transposed(byAge: number[][], sizes: number): number[][] {
  return Array.from({ length: sizes }, (_, size) => byAge.map((row) => row[size] ?? 0))
}

/** What the screens show of blocks. */
export const BUFFER_SHOW = 'pid,program,device,device_id,space,id,bytes,age,tag,site,moves'
