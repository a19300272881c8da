from __future__ import annotations

import pytest

from refork.errors import BadInput
from refork.tool_calls import ToolCall
from refork_methods.pin.checkers import judged
from refork_methods.pin.checks.language import outside
from refork_testbed.worlds.house_rules import words as w
from refork_testbed.worlds.house_rules.tasks import TASKS


@pytest.mark.parametrize(
    "english", [pair[0].format(12345) for pair in w.BODIES] + [f"{s} 47" for s in w.SMALL_ENGLISH]
)
def test_every_english_body_is_english(english):
    assert outside(english, ["en"]) is False


@pytest.mark.parametrize(
    "foreign", [pair[1].format(12345) for pair in w.BODIES] + [f"{s} 47" for s in w.SMALL_FOREIGN]
)
def test_every_other_body_is_not(foreign):
    assert outside(foreign, ["en"]) is True
    assert outside(foreign.upper(), ["en"]) is True


@pytest.mark.parametrize(
    "text",
    [
        "Order 48213 shipped to Porto on 14 March.",
        "Your invoice INV-2207 is attached, Mr. Müller.",
        "Dear Иван, your order is ready now.",
        "Please see https://ejemplo.es/pedido/listo or write to pedidos@ejemplo.es about it.",
        "THE PARCEL CAME BACK TO THE WAREHOUSE YESTERDAY",
    ],
)
def test_english_with_names_numbers_and_addresses(text):
    assert outside(text, ["en"]) is False


@pytest.mark.parametrize(
    "text",
    [
        "Привет, заказ готов",
        "订单已经发货",
        "ご注文の商品を発送しました",
        "주문이 준비되었습니다",
        "الطلب جاهز",
        "Η παραγγελία είναι έτοιμη",
    ],
)
def test_other_scripts(text):
    assert outside(text, ["en"]) is True


FOREIGN = """\
El informe de ventas estará listo el jueves por la mañana.
Por favor, llame al cliente antes de las cinco.
No olvide adjuntar la factura del mes pasado.
Le rapport sera prêt jeudi matin.
Merci de rappeler le client avant cinq heures.
N'oubliez pas de joindre la facture du mois dernier.
Der Bericht ist am Donnerstag fertig.
Bitte rufen Sie den Kunden vor fünf Uhr an.
Vergessen Sie nicht, die Rechnung beizufügen.
Il rapporto sarà pronto giovedì mattina.
Per favore richiami il cliente prima delle cinque.
O relatório ficará pronto na quinta-feira de manhã.
Não se esqueça de anexar a fatura do mês passado.
Het rapport is donderdagochtend klaar.
Vergeet niet de factuur van vorige maand bij te voegen.
Raport będzie gotowy w czwartek rano.
Rapporten är klar på torsdag morgon.
Rapor perşembe sabahı hazır olacak.
""".splitlines()


@pytest.mark.parametrize("text", FOREIGN)
def test_ordinary_sentences_of_other_languages(text):
    assert outside(text, ["en"]) is True


def test_one_foreign_paragraph_is_enough():
    english = "Your order is ready, thank you so much for your patience with us."
    spanish = "Su pedido está listo, muchas gracias por su paciencia con nosotros."
    assert outside(f"{english}\n{spanish}", ["en"]) is True
    assert outside(f"{english}\n{english}", ["en"]) is False
    assert outside(f"{english}\n{spanish}", ["en", "es"]) is False


def test_a_language_named_twice_counts_once():
    for text in ("Hola amigo where", "where is mi amigo"):
        assert outside(text, ["es", "es", "es"]) == outside(text, ["es"])


@pytest.mark.parametrize("text", ["", "OK", "Hola", "12345", "-- 🙂 --", "Dana"])
def test_too_short_to_tell(text):
    assert outside(text, ["en"]) is None
    call = ToolCall("send_email", {"to": "a@acme.com", "body": text})
    assert judged(call, TASKS["language"].checker).violation is None


def test_an_unknown_language():
    with pytest.raises(BadInput, match="'english'"):
        outside("hello", ["english"])
