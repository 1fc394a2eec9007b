from __future__ import annotations

import string
from importlib.util import find_spec

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgekit.retrieval import compiled, stemmer

LANGUAGE = compiled.Profiles(compiled.bundled()).by_kind["markdown"].language

# One pair at least for each rule of the algorithm.
STEMS = """
a a  at at  sky sky  skies sky  news news  dying die  tying tie  idly idl  gently gentl  early earli
caresses caress  ties tie  tied tie  cries cri  cats cat  gas gas  this this  gaps gap  bus bus  kiwis kiwi
inning inning  proceed proceed  evening evening  succeeding succeed
agreed agre  feed feed  hoped hope  hopping hop  hoping hope  falling fall  luxuriated luxuri  sized size
adding add  egged egg  trying tri  saying say  enjoying enjoy  by by  cry cri  youth youth  boy boy
conditional condit  rational ration  valenci valenc  digitizer digit  operator oper  feudalism feudal
decisiveness decis  hopefulness hope  callousness callous  formality formal  sensitivity sensit
sensibility sensibl  geologist geolog  analogy analog  quickly quick  gladly glad  fully fulli
triplicate triplic  formative format  formalize formal  electricity electr  electrical electr  goodness good
revival reviv  allowance allow  inference infer  airliner airlin  adjustable adjust  replacement replac
adoption adopt  communism communism  activate activ  effective effect  bowdlerize bowdler
generate generat  general general  communication communic  arsenal arsenal  university universiti
rate rate  controlling control  rolling roll  parable parabl  cease ceas  probate probat
refresh refresh  refreshes refresh  refreshing refresh  authentication authent  deployment deploy
configuration configur  queries queri  utf8 utf8  k8s k8s  naïve naïve  café café
"""
PAIRS = list(zip(STEMS.split()[::2], STEMS.split()[1::2], strict=True))


@pytest.mark.parametrize(("word", "expected"), PAIRS)
def test_stems(word: str, expected: str) -> None:
    assert stemmer.stem(word) == expected


@pytest.mark.skipif(find_spec("snowballstemmer") is None, reason="snowballstemmer is not installed")
def test_the_reference_says_the_same() -> None:
    import snowballstemmer  # type: ignore[import-not-found, import-untyped, unused-ignore] # noqa: PLC0415 - not a dependency

    reference = snowballstemmer.stemmer("english")
    endings = (
        "",
        "s",
        "ed",
        "ing",
        "ly",
        "ness",
        "ation",
        "ational",
        "ability",
        "ement",
        "ied",
        "ying",
        "ll",
    )
    words = {word + ending for word, _ in PAIRS for ending in endings if word.isascii()}
    assert {word: stemmer.stem(word) for word in words} == {word: reference.stemWord(word) for word in words}


@given(st.text(string.ascii_lowercase + string.digits, max_size=20))
def test_a_stem_is_no_longer_than_its_word_by_more_than_an_e(word: str) -> None:
    stem = stemmer.stem(word)
    assert len(stem) <= len(word) + 1
    assert bool(stem) == bool(word)
    assert stem == stem.lower()


@given(st.text(max_size=40))
def test_any_text_can_be_cut(text: str) -> None:
    for stem in stemmer.stems(text, LANGUAGE):
        assert stem
        assert " " not in stem


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("The quick foxes went home", ["quick", "fox", "go", "home"]),
        ("children's indices", ["child", "s", "index"]),
        ("naïve CAFÉ", ["naiv", "cafe"]),
        ("nai\u0308ve", ["naiv"]),
        ("user_id rate-limit React.FC", ["user", "id", "rate", "limit", "react", "fc"]),
        ("had got gotten", []),
        ("认证流程", ["认证流程"]),
        ("\ud800x\x00y", ["x", "y"]),
    ],
)
def test_text_becomes_stems(text: str, expected: list[str]) -> None:
    assert stemmer.stems(text, LANGUAGE) == expected


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stemmer, "_MAX_KNOWN", 3)
    for number in range(10):
        stemmer.stems(f"word{number}", LANGUAGE)
    assert len(LANGUAGE.stems) <= 4
    assert stemmer.stems("refreshing", LANGUAGE) == ["refresh"]
