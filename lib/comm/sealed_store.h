// Values of the ranks' store that only ranks with the job's key can have written.
#pragma once

#include "comm/store.h"

#include <string>

namespace trainopt {

/// A view of `store` in which every value carries an HMAC-SHA-256 of its key's name and itself under `key`, which never
/// is in the store. A value without a valid one counts as absent, and the first such value is logged. Numbers, which
/// the store itself adds up, cannot be sealed: a stranger can end a job by them, so no result may depend on them.
c10::intrusive_ptr<c10d::Store> sealed_store(c10::intrusive_ptr<c10d::Store> store, std::string key);

}  // namespace trainopt
