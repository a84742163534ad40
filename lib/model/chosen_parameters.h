// Words of a recipe that choose some of a model's parameters.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace trainopt {

class Model;

/// The names of the parameters that the words choose. A word is `norm` (weights and biases of batch-norm and layer
/// norm), `bias`, `embedding`, the name of a unit (Model::unit_parameters()), or a parameter's name or
/// its beginning up to a dot. Throws UserError naming `key` and the model's units for a word that chooses none.
std::set<std::string> chosen_parameters(const Model& model, const std::vector<std::string>& words,
                                        const std::string& key);

}  // namespace trainopt
