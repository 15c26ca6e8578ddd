/* What a call on a file suffers (shim_fate.c). `kind` is WRITES, FSYNCS or READS. */

#pragma once
#include "shim.h"

/* What a call needs of the file system: the further down, the longer it keeps working. */
enum need { DATA, ROOM, CHANGE, WRITABLE };

struct fate {
    int error; /* 0: none */
    bool is_short;
};

static const struct fate UNHURT;

/* Random bits. */
INTERNAL uint64_t shim_draw(void);

/* For calls while something of the kind is broken. They have waited if that is part of the fate, and set errno
 * if an error is; otherwise they leave it alone. `path` is relative to `directory`, as in openat. */
INTERNAL struct fate shim_file_fate(int64_t kind, enum need need, int descriptor);
INTERNAL struct fate shim_path_fate(int64_t kind, enum need need, int directory, const char *path);
INTERNAL struct fate shim_memory_fate(int64_t kind, enum need need, const void *address);
