#include "base/files/pickle.h"
#include "support/catch.h"

#include <limits>

using namespace trainopt;

TEST_CASE("values are pickled in protocol 2") {
  PickleWriter writer;
  writer.begin_dictionary();
  writer.text("a");
  writer.begin_list();
  writer.integer(1);
  writer.integer(-2);
  writer.integer(int64_t{1} << 32);
  writer.boolean(true);
  writer.boolean(false);
  writer.none();
  writer.end_list();
  writer.end_dictionary();
  // pickletools.dis() of it: PROTO 2, EMPTY_DICT, MARK, BINUNICODE 'a', EMPTY_LIST, MARK, BININT 1, BININT -2,
  // LONG1 4294967296, NEWTRUE, NEWFALSE, NONE, APPENDS, SETITEMS, STOP
  const std::string expected = std::string("\x80\x02}(X\x01\x00\x00\x00", 9) + "a](" +
                               std::string("J\x01\x00\x00\x00", 5) + "J\xfe\xff\xff\xff" +
                               std::string("\x8a\x08\x00\x00\x00\x00\x01\x00\x00\x00", 10) + "\x88\x89Neu.";
  CHECK(writer.finish() == expected);
}

TEST_CASE("a finished writer starts anew") {
  PickleWriter writer;
  writer.none();
  CHECK(writer.finish() == "\x80\x02N.");
  writer.integer(std::numeric_limits<int32_t>::min());
  CHECK(writer.finish() == std::string("\x80\x02J\x00\x00\x00\x80.", 8));
}
