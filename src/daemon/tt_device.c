/* Tenstorrent devices. See tt_device.h. */
#include "daemon/tt_device.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/sum.h"
#include "daemon/behalf.h"
#include "daemon/daemon.h"
#include "daemon/server.h"
#include "ledger/ledger.h"

enum { SYS_DEVICES_MAX = 64, SYS_LOOK_MS = 2000 };

/* Capacities of an architecture. L1 is that of the worker cores, which programs can use, not of every place
 * in the grid. */
static const struct arch {
    const char *name, *word; /* for people, and what names of devices contain */
    uint64_t dram_per_channel;
    uint32_t channels, l1_per_core, workers;
} archs[] = {
    [TT_ARCH_GRAYSKULL] = {"Grayskull", "grayskull"}, /* nothing known for sure */
    [TT_ARCH_WORMHOLE] = {"Wormhole_B0", "wormhole", UINT64_C(2147483648), 6, 1499136, 80},
    [TT_ARCH_BLACKHOLE] = {"Blackhole", "blackhole", UINT64_C(4278190080), 8, 1572864, 140},
    [TT_ARCH_QUASAR] = {"Quasar", "quasar", UINT64_C(1073741824), 2, 4194304, 32},
};
enum { ARCHS = sizeof(archs) / sizeof(archs[0]) };

static enum tt_arch arch_by_word(const char *text)
{
    for (int i = 1; i < ARCHS; i++)
        if (strcasestr(text, archs[i].word))
            return (enum tt_arch)i;
    return TT_ARCH_UNKNOWN;
}

/* ---- /sys/class/tenstorrent ---- */

static struct sys_devices {
    uint64_t looked_ns;
    bool there[SYS_DEVICES_MAX];
    enum tt_arch arch[SYS_DEVICES_MAX];
} sys; /* the loop's thread only */

/* Boards are called e75, n150, n300, p100, p150: by a letter of their architecture. */
static enum tt_arch arch_by_card(const char *card)
{
    enum tt_arch arch = arch_by_word(card);
    if (arch != TT_ARCH_UNKNOWN)
        return arch;
    switch (card[0]) {
    case 'e':
        return TT_ARCH_GRAYSKULL;
    case 'n':
        return TT_ARCH_WORMHOLE;
    case 'p':
        return TT_ARCH_BLACKHOLE;
    default:
        return TT_ARCH_UNKNOWN;
    }
}

static void sys_look(void)
{
    uint64_t now = clock_monotonic_ns();
    if (sys.looked_ns && now - sys.looked_ns < SYS_LOOK_MS * NS_PER_MS)
        return;
    sys = (struct sys_devices){.looked_ns = now};
    DIR *dir = opendir("/sys/class/tenstorrent");
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        const char *digits = strpbrk(entry->d_name, "0123456789");
        unsigned long number = digits ? strtoul(digits, NULL, 10) : SYS_DEVICES_MAX;
        if (entry->d_name[0] == '.' || number >= SYS_DEVICES_MAX)
            continue;
        sys.there[number] = true;
        char path[512], card[64] = "";
        snprintf(path, sizeof(path), "/sys/class/tenstorrent/%s/tt_card_type", entry->d_name);
        FILE *f = fopen(path, "re");
        if (f && fgets(card, sizeof(card), f))
            sys.arch[number] = arch_by_card(card);
        if (f)
            fclose(f);
    }
    if (dir)
        closedir(dir);
}

/* ---- the ledger's rows ---- */

static bool is_tt(const struct ledger_device *d, int32_t ordinal)
{
    return d->kind == MEMOIR_DEVICE_NPU && d->ordinal == ordinal && !d->host[0];
}

/* The row after `after` that is this device: processes may tell of it in several ways. */
static const struct ledger_device *row_next(const struct server *server, int32_t ordinal,
                                            size_t *cursor)
{
    size_t n;
    struct ledger_device *const *all = ledger_devices(server->daemon->ledger, &n);
    while (*cursor < n) {
        const struct ledger_device *d = all[(*cursor)++];
        if (is_tt(d, ordinal))
            return d;
    }
    return NULL;
}

/* What the driver or the configuration says. */
static enum tt_arch arch_confirmed(const struct daemon *daemon, int32_t ordinal)
{
    enum tt_arch arch = TT_ARCH_UNKNOWN;
    sys_look();
    if (ordinal >= 0 && ordinal < SYS_DEVICES_MAX)
        arch = sys.arch[ordinal];
    return arch == TT_ARCH_UNKNOWN ? arch_by_word(daemon->config.tt_arch) : arch;
}

/* The same, else by what a process calls the device. */
static enum tt_arch arch_of(const struct server *server, int32_t ordinal)
{
    size_t cursor = 0;
    const struct ledger_device *d;
    enum tt_arch arch = arch_confirmed(server->daemon, ordinal);
    while (arch == TT_ARCH_UNKNOWN && (d = row_next(server, ordinal, &cursor)))
        arch = arch_by_word(d->name);
    return arch;
}

static uint64_t arch_size(const struct arch *arch, uint32_t space)
{
    return space == MEMOIR_SPACE_DRAM ? arch->dram_per_channel * arch->channels
           : space == MEMOIR_SPACE_L1 ? (uint64_t)arch->l1_per_core * arch->workers
                                      : 0;
}

uint64_t tt_device_size(void *context, const struct ledger_device *d, uint32_t space)
{
    if (!is_tt(d, d->ordinal) ||
        (arch_by_word(d->name) == TT_ARCH_UNKNOWN && strcmp(d->name, "Tenstorrent") != 0))
        return 0;
    return arch_size(&archs[arch_confirmed(context, d->ordinal)], space);
}

void tt_device_describe(struct server *server, int32_t ordinal, struct tt_answer *answer)
{
    const struct arch *arch = &archs[answer->arch = arch_of(server, ordinal)];
    answer->dram_channels = arch->channels;
    answer->dram_per_channel = (uint32_t)arch->dram_per_channel;
    answer->l1_per_core = arch->l1_per_core;
    uint64_t dram = 0, l1 = 0;
    bool told = false;
    size_t cursor = 0;
    const struct ledger_device *d;
    while ((d = row_next(server, ordinal, &cursor))) {
        told = true;
        uint64_t c = d->spaces[MEMOIR_SPACE_DRAM].capacity;
        dram = c > dram ? c : dram;
        c = d->spaces[MEMOIR_SPACE_L1].capacity;
        l1 = c > l1 ? c : l1;
    }
    answer->total_dram = dram ? dram : arch_size(arch, MEMOIR_SPACE_DRAM);
    answer->total_l1 = l1 ? l1 : arch_size(arch, MEMOIR_SPACE_L1);
    /* Clients replace their own defaults by these capacities where a device is available. So a device of
     * unknown capacity is not. */
    bool there = told || (ordinal >= 0 && ordinal < SYS_DEVICES_MAX && sys.there[ordinal]);
    answer->available = there && answer->total_dram > 0;
}

uint32_t tt_device_count(struct server *server)
{
    bool there[TT_DEVICES_MAX] = {false};
    size_t n;
    struct ledger_device *const *all = ledger_devices(server->daemon->ledger, &n);
    sys_look();
    for (size_t i = 0; i < SYS_DEVICES_MAX; i++)
        there[i] = sys.there[i];
    for (size_t i = 0; i < n; i++)
        if (all[i]->ordinal >= 0 && all[i]->ordinal < TT_DEVICES_MAX &&
            is_tt(all[i], all[i]->ordinal))
            there[all[i]->ordinal] = true;
    uint32_t count = 0;
    for (size_t i = 0; i < TT_DEVICES_MAX; i++)
        count += there[i];
    return count;
}

void tt_device_usage(struct server *server, int32_t ordinal, struct tt_answer *answer)
{
    static const uint32_t spaces[] = {MEMOIR_SPACE_DRAM,  MEMOIR_SPACE_L1, MEMOIR_SPACE_L1_SMALL,
                                      MEMOIR_SPACE_TRACE, MEMOIR_SPACE_CB, MEMOIR_SPACE_KERNEL};
    uint64_t sums[6] = {0}, blocks = 0, bytes = 0, kernels = 0;
    size_t cursor = 0;
    const struct ledger_device *d;
    while ((d = row_next(server, ordinal, &cursor)))
        for (size_t i = 0; i < 6; i++) {
            const struct ledger_capacity *c = &d->spaces[spaces[i]];
            if (c->space == 0)
                continue;
            sum_add(&sums[i], c->used);
            sum_add(&bytes, c->used);
            sum_add(&blocks, c->blocks);
            sum_add(&kernels, spaces[i] == MEMOIR_SPACE_KERNEL ? c->blocks : 0);
        }
    answer->dram = sums[0];
    answer->l1 = sums[1];
    answer->l1_small = sums[2];
    answer->trace = sums[3];
    answer->cb = sums[4];
    answer->kernel = sums[5];
    answer->head.size = bytes;
    answer->head.buffer_id = blocks;
    /* How full the ring of kernels in each core is not reported: loads come multiplied by cores, and
     * evictions not at all. So its size stays 0, which means "not known"; programs are counted. */
    answer->programs = kernels < UINT32_MAX ? (uint32_t)kernels : UINT32_MAX;
}

int tt_device_declare(struct server *server, struct behalf *behalf, int32_t ordinal)
{
    struct memoir_capacity capacity[2];
    size_t n = 0, cursor = 0;
    /* Other users' names for the device must not make up its size. */
    enum tt_arch arch = arch_confirmed(server->daemon, ordinal);
    /* The row that says most: who tells no uid would be another device, and count twice what a process
     * reports in two ways. */
    const struct ledger_device *known = NULL, *d;
    while ((d = row_next(server, ordinal, &cursor)))
        if (!known || (!known->uid[0] && d->uid[0]))
            known = d;
    if (archs[arch].channels) {
        capacity[n++] =
            (struct memoir_capacity){MEMOIR_SPACE_DRAM, arch_size(&archs[arch], MEMOIR_SPACE_DRAM)};
        capacity[n++] =
            (struct memoir_capacity){MEMOIR_SPACE_L1, arch_size(&archs[arch], MEMOIR_SPACE_L1)};
    }
    struct behalf_device device = {
        .kind = MEMOIR_DEVICE_NPU,
        .ordinal = ordinal,
        .name = known              ? known->name
                : archs[arch].name ? archs[arch].name
                                   : "Tenstorrent",
        .uid = known ? known->uid : NULL,
        .bus = known ? known->bus : NULL,
        .capacity = capacity,
        .n_capacity = n,
    };
    return behalf_device(behalf, &device);
}
