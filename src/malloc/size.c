/* size.c: see size.h. */
#include "malloc/size.h"

/* A line for each doubling. */
/* clang-format off */
const uint16_t size_further[SIZE_CLASSES - SIZE_DIRECT_CLASSES] = {
    1088, 1152, 1216, 1344, 1472, 1600, 1792, 2048,
    2176, 2304, 2496, 2688, 2944, 3264, 3584, 4096,
    4416, 4864, 5376, 5888, 6400, 6912, 7424, 7936, 8192,
    9344, 10624,
};

const uint8_t size_slices[SIZE_CLASSES] = {
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    1, 1, 1, 1, 1, 1, 1, 1,
    2, 1, 2, 1, 2, 1, 2, 2,
    3, 2, 1, 2, 2, 2, 2, 2, 3,
    2, 2,
};

#define CHECK(bytes) (uint32_t)(((UINT64_C(1) << 32) + (bytes) - 1) / (bytes))
const uint32_t size_check[SIZE_CLASSES] = {
    CHECK(16), CHECK(32), CHECK(48), CHECK(64), CHECK(80), CHECK(96), CHECK(112), CHECK(128),
    CHECK(144), CHECK(160), CHECK(176), CHECK(192), CHECK(208), CHECK(224), CHECK(240), CHECK(256),
    CHECK(288), CHECK(320), CHECK(352), CHECK(384), CHECK(416), CHECK(448), CHECK(480), CHECK(512),
    CHECK(576), CHECK(640), CHECK(704), CHECK(768), CHECK(832), CHECK(896), CHECK(960), CHECK(1024),
    CHECK(1088), CHECK(1152), CHECK(1216), CHECK(1344), CHECK(1472), CHECK(1600), CHECK(1792), CHECK(2048),
    CHECK(2176), CHECK(2304), CHECK(2496), CHECK(2688), CHECK(2944), CHECK(3264), CHECK(3584), CHECK(4096),
    CHECK(4416), CHECK(4864), CHECK(5376), CHECK(5888), CHECK(6400), CHECK(6912), CHECK(7424), CHECK(7936), CHECK(8192),
    CHECK(9344), CHECK(10624),
};

const uint8_t size_shared[SIZE_CLASSES] = {
    3, 3, 3, 3, 7, 7, 7, 7, 15, 15, 15, 15, 15, 15, 15, 15,
    23, 23, 23, 23, 23, 23, 23, 23, 31, 31, 31, 31, 31, 31, 31, 31,
    39, 39, 39, 39, 39, 39, 39, 39,
    47, 47, 47, 47, 47, 47, 47, 47,
    56, 56, 56, 56, 56, 56, 56, 56, 56,
    57, 58,
};

const uint8_t size_sharers[SIZE_CLASSES] = {
    [3] = 3, [7] = 3, [15] = 7, [23] = 7, [31] = 7, [39] = 7, [47] = 7, [56] = 8,
};

/* From behind one class to the end of the next. */
#define BEHIND(from, to) \
    ((from) - SIZE_DIRECT_MAX) / SIZE_LINE ... ((to) - SIZE_DIRECT_MAX) / SIZE_LINE - 1

const uint8_t size_by_line[SIZE_LINES] = {
    [BEHIND(1024, 1088)] = 32,
    [BEHIND(1088, 1152)] = 33,
    [BEHIND(1152, 1216)] = 34,
    [BEHIND(1216, 1344)] = 35,
    [BEHIND(1344, 1472)] = 36,
    [BEHIND(1472, 1600)] = 37,
    [BEHIND(1600, 1792)] = 38,
    [BEHIND(1792, 2048)] = 39,
    [BEHIND(2048, 2176)] = 40,
    [BEHIND(2176, 2304)] = 41,
    [BEHIND(2304, 2496)] = 42,
    [BEHIND(2496, 2688)] = 43,
    [BEHIND(2688, 2944)] = 44,
    [BEHIND(2944, 3264)] = 45,
    [BEHIND(3264, 3584)] = 46,
    [BEHIND(3584, 4096)] = 47,
    [BEHIND(4096, 4416)] = 48,
    [BEHIND(4416, 4864)] = 49,
    [BEHIND(4864, 5376)] = 50,
    [BEHIND(5376, 5888)] = 51,
    [BEHIND(5888, 6400)] = 52,
    [BEHIND(6400, 6912)] = 53,
    [BEHIND(6912, 7424)] = 54,
    [BEHIND(7424, 7936)] = 55,
    [BEHIND(7936, 8192)] = 56,
    [BEHIND(8192, 9344)] = 57,
    [BEHIND(9344, 10624)] = 58,
};
/* clang-format on */
