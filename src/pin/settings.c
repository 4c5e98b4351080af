/* settings.c: see settings.h. */
#include "pin/settings.h"

#include <stdlib.h>
#include <string.h>

enum { THRESHOLD_DEFAULT = 256 << 10, THRESHOLD_MIN = 64 << 10 };

struct pin_settings pin_settings = {.mode = PIN_OFF, .threshold_bytes = UINT64_MAX};

static const char *const words[PIN_MODES] = {[PIN_AUTO] = "auto",
                                             [PIN_USE] = "use",
                                             [PIN_PROFILE] = "profile",
                                             [PIN_SHADOW] = "shadow",
                                             [PIN_OFF] = "off"};

const char *pin_mode_word(enum pin_mode mode)
{
    return mode < PIN_MODES ? words[mode] : "unknown";
}

bool pin_settings_bytes(const char *text, uint64_t *ret)
{
    uint64_t value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (value > (UINT64_MAX >> 8) / 10)
            return false;
        value = value * 10 + (uint64_t)(*at - '0');
    }
    unsigned shift = 0;
    if (*at == 'K' || *at == 'k')
        shift = 10;
    else if (*at == 'M' || *at == 'm')
        shift = 20;
    else if (*at == 'G' || *at == 'g')
        shift = 30;
    else if (*at == 'T' || *at == 't')
        shift = 40;
    at += shift != 0;
    if (at == text || *at || (shift && value > UINT64_MAX >> shift))
        return false;
    *ret = value << shift;
    return true;
}

static bool flag(const char *name)
{
    const char *value = secure_getenv(name);
    return value && *value && strcmp(value, "0") != 0;
}

/* On, unless it says 0. */
static bool unless_off(const char *name)
{
    const char *value = secure_getenv(name);
    return !value || strcmp(value, "0") != 0;
}

static void text(const char *name, char to[static PIN_PATH_MAX])
{
    const char *value = secure_getenv(name);
    size_t n = value ? strlen(value) : 0;
    if (n > 0 && n < PIN_PATH_MAX)
        memcpy(to, value, n + 1);
}

void pin_settings_read(void)
{
    struct pin_settings s = {.mode = PIN_AUTO,
                             .threshold_bytes = THRESHOLD_DEFAULT,
                             .budget_bytes = UINT64_MAX,
                             .price_ns_mib = UINT64_MAX};
    const char *mode = secure_getenv("MEMOIR_PIN"), *budget = secure_getenv("MEMOIR_PIN_BUDGET");
    const char *threshold = secure_getenv("MEMOIR_PIN_THRESHOLD"),
               *price = secure_getenv("MEMOIR_PIN_PRICE");
    for (unsigned i = 0; mode && i < PIN_MODES; i++)
        if (strcmp(mode, words[i]) == 0)
            s.mode = (enum pin_mode)i;
    if (flag("MEMOIR_OFF"))
        s.mode = PIN_OFF;
    if (budget && strcmp(budget, "unlimited") == 0)
        s.unlimited = true;
    else if (budget)
        (void)pin_settings_bytes(budget, &s.budget_bytes);
    if (price)
        (void)pin_settings_bytes(price, &s.price_ns_mib);
    if (threshold && pin_settings_bytes(threshold, &s.threshold_bytes) &&
        s.threshold_bytes < THRESHOLD_MIN)
        s.threshold_bytes = THRESHOLD_MIN;
    s.checksum = flag("MEMOIR_PIN_CHECKSUM");
    s.async = flag("MEMOIR_PIN_ASYNC");
    s.stage = unless_off("MEMOIR_PIN_STAGE");
    s.touch = unless_off("MEMOIR_PIN_TOUCH");
    s.adapt = unless_off("MEMOIR_PIN_ADAPT");
    s.keep = flag("MEMOIR_PIN_KEEP");
    text("MEMOIR_PIN_HISTORY", s.history);
    text("MEMOIR_PIN_CACHE", s.cache);
    pin_settings = s;
}
