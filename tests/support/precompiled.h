// Headers that nearly every test with libtorch needs, parsed once. Do not include this file by hand: each file still
// includes what it uses.
#include "../../lib/precompiled.h"
#include "support/catch.h"
