// The AWS tools' shared files of credentials and settings.
#pragma once

#include "storage/s3/credential_parts.h"
#include "storage/variables.h"

#include <optional>
#include <string>
#include <string_view>

namespace trainopt {

using Section = Variables;  ///< settings by name, in lower case

/// A section of an INI file as the AWS tools read them; empty if it is missing. Lines that are neither a section, a
/// setting nor a comment are skipped.
Section section_of(std::string_view file, const std::string& name);

/// From the profile's sections in both files, or its credential_process. Throws for a profile that was named and has
/// none, and for one whose credentials need a further request (role_arn, sso).
std::optional<Credentials> credentials_of_profile(const CredentialsQuery& query, LookedIn& looked);

}  // namespace trainopt
