"""Facts and rules, pure: standard library and msgspec only; the time, new ids and who acts are arguments."""
