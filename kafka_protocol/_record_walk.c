/* The loop of record_walk.RecordWalk, compiled. That class is the specification: tests compare both.
 *
 * One function, without state of its own. It reads only the caller's buffer, keeps nothing and never
 * releases the interpreter lock, so the buffer cannot change meanwhile.
 */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    const uint8_t *at;
    const uint8_t *end; /* of the record: nothing at or after it is read */
} Cursor;

/* Unsigned varints, as primitives.read_uvarint (32 bits in five bytes) and the raw value of
 * primitives.read_varlong (64 bits in ten). False if the varint is too wide or reaches past the end. */

static inline bool read_raw(Cursor *cursor, int most_bytes, uint64_t most, uint64_t *value)
{
    uint64_t read = 0;
    for (int index = 0; index < most_bytes; index++) {
        if (cursor->at >= cursor->end)
            return false;
        uint64_t byte = *cursor->at++;
        uint64_t bits = byte & 0x7F;
        if (index == 9 && bits > 1) /* the 64th bit is the last */
            return false;
        read |= bits << (7 * index);
        if (byte < 128) {
            *value = read;
            return read <= most;
        }
    }
    return false;
}

static inline int64_t zigzag(uint64_t raw)
{
    return (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
}

static inline bool read_varint(Cursor *cursor, int64_t *value)
{
    uint64_t raw;
    if (cursor->at < cursor->end && *cursor->at < 128)
        raw = *cursor->at++;
    else if (!read_raw(cursor, 5, UINT32_MAX, &raw))
        return false;
    *value = zigzag(raw);
    return true;
}

static inline bool read_varlong(Cursor *cursor, int64_t *value)
{
    uint64_t raw;
    if (!read_raw(cursor, 10, UINT64_MAX, &raw))
        return false;
    *value = zigzag(raw);
    return true;
}

/* Skip a length and as many bytes. `least` is the least length allowed: -1 is null. */
static inline bool skip_bytes(Cursor *cursor, int64_t least, bool *is_null)
{
    int64_t length;
    if (!read_varint(cursor, &length) || length < least)
        return false;
    *is_null = length < 0;
    if (length > cursor->end - cursor->at)
        return false;
    cursor->at += length > 0 ? length : 0;
    return true;
}

static inline bool skip_header(Cursor *cursor)
{
    bool is_null;
    return skip_bytes(cursor, 0, &is_null) && skip_bytes(cursor, -1, &is_null);
}

typedef struct {
    Py_ssize_t index;        /* of the next record */
    Py_ssize_t position;     /* where the walk continues */
    Py_ssize_t headers_left; /* of the record before, which ends at `end` */
    Py_ssize_t end;
    long long greatest_delta;
    Py_ssize_t steps;
} Walk;

typedef struct {
    int requires_keys;
    long long least_delta;
    long long greatest_delta; /* less than the least: no delta is in range */
    long long exempt_delta;
    bool has_exempt;
} Rules;

/* An int as one of 64 bits; `overflow` tells on which side it lies outside of them. False for an error. */
static bool read_long(PyObject *number, long long *value, int *overflow)
{
    *value = PyLong_AsLongLongAndOverflow(number, overflow);
    return *value != -1 || !PyErr_Occurred();
}

/* The limits of record_walk.RecordRules, which may lie outside of 64 bits. False for an error. */
static bool read_rules(PyObject *least, PyObject *greatest, PyObject *exempt, Rules *rules)
{
    int below, above, outside;
    if (!read_long(least, &rules->least_delta, &below) || !read_long(greatest, &rules->greatest_delta, &above)
        || !read_long(exempt, &rules->exempt_delta, &outside))
        return false;
    rules->has_exempt = outside == 0;
    if (below > 0 || above < 0) {
        rules->least_delta = LLONG_MAX;
        rules->greatest_delta = LLONG_MIN;
        return true;
    }
    if (below < 0)
        rules->least_delta = LLONG_MIN;
    if (above > 0)
        rules->greatest_delta = LLONG_MAX;
    return true;
}

static int append_rejected(PyObject *rejected, Py_ssize_t index, bool lacks_key, long long delta)
{
    PyObject *one = Py_BuildValue("(nOL)", index, lacks_key ? Py_True : Py_False, delta);
    if (one == NULL)
        return -1;
    int status = PyList_Append(rejected, one);
    Py_DECREF(one);
    return status;
}

static int fail(const char *what)
{
    PyErr_SetString(PyExc_ValueError, what);
    return -1;
}

static int fail_with(const char *format, Py_ssize_t index, int64_t value)
{
    PyErr_Format(PyExc_ValueError, format, index, (long long)value);
    return -1;
}

/* Read headers until the record or the work ends. */
static int walk_headers(const uint8_t *body, Walk *walk, Py_ssize_t steps)
{
    Cursor cursor = {body + walk->position, body + walk->end};
    while (walk->headers_left > 0 && walk->steps < steps) {
        if (!skip_header(&cursor))
            return fail("a header is cut short");
        walk->headers_left--;
        walk->steps++;
    }
    walk->position = cursor.at - body;
    if (walk->headers_left == 0 && walk->position != walk->end)
        return fail("a record does not fill its length");
    return 0;
}

/* Read one record up to its headers, and find out whether it breaks a rule. */
static int walk_record(
    const uint8_t *body, Py_ssize_t size, Walk *walk, const Rules *rules, PyObject *rejected)
{
    Cursor cursor = {body + walk->position, body + size};
    Py_ssize_t index = walk->index;
    int64_t length, stamp, delta, headers;
    bool lacks_key, lacks_value;
    if (!read_varint(&cursor, &length) || length < 0 || length > cursor.end - cursor.at)
        return fail("a record is cut short");
    cursor.end = cursor.at + length;
    if (length == 0)
        return fail("a record does not fill its length");
    cursor.at++; /* the record's attributes: unused */
    if (!read_varlong(&cursor, &stamp) || !read_varint(&cursor, &delta))
        return fail("a record is cut short");
    if (delta != index)
        return fail_with("record %zd has the offset delta %lld", index, delta);
    if (!skip_bytes(&cursor, -1, &lacks_key))
        return fail("a key does not fit into its record");
    if (!skip_bytes(&cursor, -1, &lacks_value))
        return fail("a value does not fit into its record");
    if (!read_varint(&cursor, &headers))
        return fail("a record is cut short");
    if (headers < 0 || headers > (cursor.end - cursor.at) / 2)
        return fail_with("record %zd has %lld headers", index, headers);
    if (stamp > walk->greatest_delta)
        walk->greatest_delta = stamp;
    if (lacks_key && rules->requires_keys) {
        if (append_rejected(rejected, index, true, 0) < 0)
            return -1;
    } else if (
        (stamp < rules->least_delta || stamp > rules->greatest_delta)
        && !(rules->has_exempt && stamp == rules->exempt_delta)
    ) {
        if (append_rejected(rejected, index, false, stamp) < 0)
            return -1;
    }
    walk->index = index + 1;
    walk->position = cursor.at - body;
    walk->end = cursor.end - body;
    walk->headers_left = headers;
    walk->steps++;
    return 0;
}

PyDoc_STRVAR(
    advance_doc,
    "advance(body, count, state, rules, steps, rejected, most_rejected)\n--\n\n"
    "Continue a walk for at most `steps` records and headers: the next state, and the steps taken.\n"
    "ValueError if the body is malformed.");

static PyObject *advance(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer body;
    Walk walk = {.steps = 0};
    Rules rules;
    Py_ssize_t count, steps, most_rejected;
    PyObject *least, *greatest, *exempt, *rejected;
    if (!PyArg_ParseTuple(
            arguments, "y*n(nnnnL)(pOOO)nO!n", &body, &count, &walk.index, &walk.position,
            &walk.headers_left, &walk.end, &walk.greatest_delta, &rules.requires_keys, &least, &greatest,
            &exempt, &steps, &PyList_Type, &rejected, &most_rejected))
        return NULL;
    PyObject *result = NULL;
    if (!read_rules(least, greatest, exempt, &rules))
        goto done;
    if (walk.position < 0 || walk.end < walk.position || walk.end > body.len || walk.index < 0) {
        fail("the state is not of this body");
        goto done;
    }
    while (walk.steps < steps) {
        if (walk.headers_left == 0) {
            if (walk.index >= count || PyList_Size(rejected) >= most_rejected)
                break;
            if (walk_record(body.buf, body.len, &walk, &rules, rejected) < 0)
                goto done;
        }
        if (walk_headers(body.buf, &walk, walk.headers_left ? steps : walk.steps) < 0)
            goto done;
    }
    result = Py_BuildValue(
        "(nnnnL)n", walk.index, walk.position, walk.headers_left, walk.end, walk.greatest_delta,
        walk.steps);
done:
    PyBuffer_Release(&body);
    return result;
}

static PyMethodDef methods[] = {
    {"advance", advance, METH_VARARGS, advance_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_record_walk", "The loop of RecordWalk, compiled.", 0, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__record_walk(void)
{
    return PyModule_Create(&definition);
}
