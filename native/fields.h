/* The fields of a record: parses them without copying keys and values. */
#ifndef KREPLICA_FIELDS_H
#define KREPLICA_FIELDS_H

#include "kernels.h"

/* Read a zigzag varint of up to 64 bits; false if it is longer, or does not end before `end`. */
static inline int read_varint(Bytes *position, Bytes end, int64_t *number)
{
    uint64_t value = 0;
    Bytes at = *position;
    for (int shift = 0; shift < 64 && at < end; shift += 7) {
        uint8_t byte = *at++;
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *position = at;
            *number = (int64_t)(value >> 1 ^ -(value & 1));
            return shift < 63 || byte < 2;
        }
    }
    return 0;
}

/* Bytes within a buffer; `size` is -1 for null. */
typedef struct {
    Bytes at;
    int64_t size;
} Span;

static inline int read_span(Bytes *position, Bytes end, Span *span)
{
    if (!read_varint(position, end, &span->size) || span->size < -1 || span->size > end - *position)
        return 0;
    span->at = *position;
    *position += span->size > 0 ? span->size : 0;
    return 1;
}

typedef struct {
    int64_t timestamp_delta, offset_delta, header_count;
    Span key, value;
    Bytes headers, end; /* headers: the bytes after the number of headers */
} Fields;

/* Read one record without parsing its headers; its offset delta must be above `previous` and at most `last`. */
static inline int read_fields(Bytes *position, Bytes end, int64_t previous, int64_t last, Fields *fields)
{
    int64_t length;
    if (!read_varint(position, end, &length) || length < 1 || length > end - *position)
        return 0;
    fields->end = *position + length;
    *position += 1; /* the attributes, which are unused */
    if (!read_varint(position, fields->end, &fields->timestamp_delta) ||
        !read_varint(position, fields->end, &fields->offset_delta) || fields->offset_delta <= previous ||
        fields->offset_delta > last || !read_span(position, fields->end, &fields->key) ||
        !read_span(position, fields->end, &fields->value) || !read_varint(position, fields->end, &fields->header_count))
        return 0;
    fields->headers = *position;
    *position = fields->end;
    if (fields->header_count == 0)
        return fields->headers == fields->end;
    return fields->header_count > 0 && fields->header_count <= (fields->end - fields->headers) / 2;
}

static inline int read_header(Bytes *position, Bytes end, Span *name, Span *value)
{
    return read_span(position, end, name) && name->size >= 0 && read_span(position, end, value);
}

#endif
