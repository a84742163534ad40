#pragma once

#include <string>

namespace trainopt {

/// This machine's source address for packets to `host`:`port`. Sends nothing. Throws UserError(peer) if the name cannot
/// be resolved or there is no route.
std::string local_address_towards(const std::string& host, int port);

}  // namespace trainopt
