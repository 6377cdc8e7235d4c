/* CRC-32C with the processor's instruction. */
#include "kernels.h"

#if defined(__x86_64__)
#define CRC_FUNCTION __attribute__((target("sse4.2")))
#define CRC_BYTE(crc, byte) __builtin_ia32_crc32qi(crc, byte)
#define CRC_WORD(crc, word) ((uint32_t)__builtin_ia32_crc32di(crc, word))
#define CRC_SUPPORTED __builtin_cpu_supports("sse4.2")
#elif defined(__aarch64__) && defined(__linux__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#include <asm/hwcap.h>
#include <sys/auxv.h>
#define CRC_FUNCTION
static inline uint32_t CRC_BYTE(uint32_t crc, uint8_t byte)
{
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"((uint32_t)byte));
    return crc;
}
static inline uint32_t CRC_WORD(uint32_t crc, uint64_t word)
{
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
    return crc;
}
#define CRC_SUPPORTED ((getauxval(AT_HWCAP) & HWCAP_CRC32) != 0)
#else /* without the instruction, kernels.py does not use the functions that need a CRC */
#define CRC_FUNCTION
#define CRC_BYTE(crc, byte) ((crc) ^ (byte))
#define CRC_WORD(crc, word) ((crc) ^ (uint32_t)(word))
#define CRC_SUPPORTED 0
#endif

/* The instruction has a latency of three cycles, so three blocks are processed at once. Appending a block of zeros to
 * a block is a linear function of its CRC; zeros[b][k][n] is the result for byte n at position k of the CRC. */
static const size_t BLOCKS[2] = {4096, 256};
static uint32_t zeros[2][4][256];

static inline uint64_t native64(Bytes at)
{
    uint64_t word;
    memcpy(&word, at, 8);
    return word;
}

static inline uint32_t append_zeros(const uint32_t table[4][256], uint32_t crc)
{
    return table[0][crc & 255] ^ table[1][crc >> 8 & 255] ^ table[2][crc >> 16 & 255] ^ table[3][crc >> 24];
}

CRC_FUNCTION static void make_zeros(void)
{
    for (int b = 0; b < 2; b++)
        for (int k = 0; k < 4; k++)
            for (int bit = 0; bit < 8; bit++) {
                uint32_t crc = 1u << (8 * k + bit);
                for (size_t at = 0; at < BLOCKS[b]; at += 8)
                    crc = CRC_WORD(crc, 0);
                for (int n = 0; n < 1 << bit; n++)
                    zeros[b][k][1 << bit | n] = zeros[b][k][n] ^ crc;
            }
}

CRC_FUNCTION uint32_t crc32c(Bytes at, Bytes end)
{
    uint32_t crc = 0xFFFFFFFF;
    for (int b = 0; b < 2; b++) {
        size_t size = BLOCKS[b];
        while ((size_t)(end - at) >= 3 * size) {
            uint32_t second = 0, third = 0;
            for (Bytes stop = at + size; at < stop; at += 8) {
                crc = CRC_WORD(crc, native64(at));
                second = CRC_WORD(second, native64(at + size));
                third = CRC_WORD(third, native64(at + 2 * size));
            }
            crc = append_zeros(zeros[b], append_zeros(zeros[b], crc) ^ second) ^ third;
            at += 2 * size;
        }
    }
    for (; end - at >= 8; at += 8)
        crc = CRC_WORD(crc, native64(at));
    for (; at < end; at++)
        crc = CRC_BYTE(crc, *at);
    return ~crc;
}

int set_up_crc32c(void)
{
    int is_supported = CRC_SUPPORTED != 0;
    if (is_supported)
        make_zeros();
    return is_supported;
}
