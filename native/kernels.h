/* Optional kernels: loops over record batches and records, in C (docs/decisions/0079).
 *
 * kreplica/wire/kernels.py loads this module and documents each function. The Python code remains the reference: a
 * kernel accepts only valid, common input, and returns None or stops before anything else. The Python code then handles
 * that input and raises the errors, so this file has no errors of its own except those of Python's API.
 *
 * - Every read from a buffer is bounded by `end`; input is never trusted, even if its CRC is correct.
 * - A number that determines how much is read is read only once, because the garbage collector may run Python code
 *   whenever an object is created, and another thread may change a bytearray while the interpreter lock is released.
 * - A function that acquires a buffer releases it; no pointer into a buffer is kept.
 */
#ifndef KREPLICA_KERNELS_H
#define KREPLICA_KERNELS_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

typedef const uint8_t *Bytes;

enum { HEADER_SIZE = 61, LENGTH_END = 12, CRC_START = 21, HEADER_FIELDS = 13, RECORD_SIZE_MIN = 7 };
enum { TRANSACTIONAL = 16, CONTROL = 32, CODEC_MASK = 7, LOG_APPEND_TIME = 8, ATTRIBUTES = 22, NO_TIMESTAMP = -1 };

static inline uint32_t load32(Bytes at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline uint64_t load64(Bytes at)
{
    return (uint64_t)load32(at) << 32 | load32(at + 4);
}

static inline void store32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> (24 - 8 * i));
}

static inline void store64(uint8_t *at, uint64_t value)
{
    store32(at, (uint32_t)(value >> 32)), store32(at + 4, (uint32_t)value);
}

/* The header of a batch. */
typedef struct {
    int64_t base_offset, base_timestamp, max_timestamp, producer_id;
    int32_t length, leader_epoch, last_offset_delta, base_sequence, record_count;
    uint32_t crc;
    int16_t attributes, producer_epoch;
    int8_t magic;
} Header;

static inline Header parse_header(Bytes at)
{
    return (Header){
        .base_offset = (int64_t)load64(at),
        .length = (int32_t)load32(at + 8),
        .leader_epoch = (int32_t)load32(at + 12),
        .magic = (int8_t)at[16],
        .crc = load32(at + 17),
        .attributes = (int16_t)(at[21] << 8 | at[22]),
        .last_offset_delta = (int32_t)load32(at + 23),
        .base_timestamp = (int64_t)load64(at + 27),
        .max_timestamp = (int64_t)load64(at + 35),
        .producer_id = (int64_t)load64(at + 43),
        .producer_epoch = (int16_t)(at[51] << 8 | at[52]),
        .base_sequence = (int32_t)load32(at + 53),
        .record_count = (int32_t)load32(at + 57),
    };
}

/* crc32c.c: false if the processor has no instruction for CRC-32C; crc32c must not be called then. */
int set_up_crc32c(void);
uint32_t crc32c(Bytes at, Bytes end);

/* module.c: these return false with an error set. */
int get_numbers(PyObject *const *arguments, int64_t *numbers, int count);
int check_arguments(Py_ssize_t given, Py_ssize_t expected);
int check_row_type(PyObject *type);

/* Return a named tuple with the fields of the tuple that is the only item of `arguments`. */
PyObject *new_tuple(PyObject *type, PyObject *arguments);

/* Return a named tuple with the fields of a tuple, whose reference is taken and which may be NULL. */
PyObject *new_named(PyObject *type, PyObject *fields);

/* Append to a list and drop the reference; false if either failed. */
int add(PyObject *list, PyObject *item);

#define KERNEL(name) PyObject *name(PyObject *module, PyObject *const *arguments, Py_ssize_t given)

/* batches.c */
KERNEL(place_batches);
KERNEL(index_batches);
KERNEL(scan_batches);

/* requests.c */
KERNEL(match_requests);
KERNEL(fill_responses);

/* rows.c */
KERNEL(read_rows);
KERNEL(read_batches);

/* records.c */
KERNEL(check_records);
KERNEL(encode_records);

/* columns.c */
KERNEL(decode_columns);

#endif
