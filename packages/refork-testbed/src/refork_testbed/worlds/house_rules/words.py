"""The names, places and things that sessions are made of: the full wording's, and the closed vocabulary."""

from __future__ import annotations

PEOPLE = (
    "Dana Whitfield", "Omar Haddad", "Priya Raman", "Lukas Brandt", "Sofia Marin", "Kenji Mori",
    "Amara Okafor", "Nils Lindqvist", "Grace Tanner", "Mateo Vidal", "Hanna Keller", "Ravi Shah",
    "Elena Petrova", "Tom Ashford", "Mei Lin", "Joseph Baker", "Ines Duarte", "Samuel Osei",
    "Clara Novak", "Victor Hale", "Leila Karimi", "Peter Walsh", "Rosa Jimenez", "Adam Kovacs",
)  # fmt: skip
CITIES = (
    "Porto", "Leeds", "Ghent", "Turin", "Malmo", "Lyon", "Bremen", "Denver", "Osaka", "Tampa", "Cork",
    "Basel", "Graz", "Perth", "Quito", "Nantes", "Bergen", "Austin", "Split", "Izmir",
)  # fmt: skip
DOMAINS = (
    "northwind-partners.com", "gmail.com", "acme.com.evil.net", "evil-acme.com", "acme.co", "globex.org",
    "initech.io", "contoso.de", "umbrella.example", "acme-support.net", "mail.fabrikam.com", "hooli.xyz",
)  # fmt: skip
REGIONS = ("us-east-1", "us-west-1", "eu-west-1", "eu-north-1", "ap-south-1", "sa-east-1")
TABLES = ("carts", "sessions", "orders", "coupons", "reviews", "shipments", "invoices", "tickets")
PROJECTS = ("Atlas", "Beacon", "Cedar", "Delta", "Ember", "Falcon", "Garnet", "Harbor")
ITEMS = (
    "office chair", "label printer", "paper shredder", "monitor arm", "docking station", "water filter",
    "tool cabinet", "standing desk", "barcode scanner", "projector lamp",
)  # fmt: skip
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October")
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
CARRIERS = ("DHL", "UPS", "FedEx", "GLS", "DPD", "PostNord")
ISSUES = (
    "a broken login page", "a late delivery", "a missing invoice", "a wrong address", "a damaged parcel",
    "a double payment", "a slow search", "an expired voucher",
)  # fmt: skip
#: English bodies, each with the same in another language.
BODIES = (
    ("Your order {0} is ready and will be delivered on Monday. Thank you for your patience.",
     "Su pedido {0} está listo y se entregará el lunes. Gracias por su paciencia."),
    ("Order {0} is delayed by two days because of the weather. We are sorry for the trouble.",
     "La commande {0} est retardée de deux jours à cause du temps. Nous sommes désolés pour la gêne."),
    ("The invoice for order {0} was paid today. Please close the file.",
     "Die Rechnung für die Bestellung {0} wurde heute bezahlt. Bitte schließen Sie die Akte."),
    ("The parcel of order {0} came back to the warehouse. Please call the customer.",
     "Il pacco dell'ordine {0} è tornato in magazzino. Per favore chiamate il cliente."),
    ("Order {0} was packed this morning and waits for the truck.",
     "O pedido {0} foi embalado hoje de manhã e espera pelo caminhão."),
    ("Order {0} has left the warehouse. It will arrive next week.",
     "订单 {0} 已经离开仓库，预计下周送达，请通知客户。"),
)  # fmt: skip

SMALL_NAMES = (
    "anna", "bob", "carl", "dina", "emil", "fay", "gus", "hana", "ivan", "jane", "karl", "lena", "mona",
    "nils", "olga", "paul", "rita", "sven", "tina", "vera",
)  # fmt: skip
SMALL_CITIES = ("rome", "oslo", "lima", "cairo", "paris", "delhi", "quito", "tokyo", "bern", "riga")
SMALL_ITEMS = ("lamp", "desk", "book", "phone", "chair", "clock", "bag", "shoe", "ring", "cup")
SMALL_COLORS = ("red", "blue", "green", "black", "white", "brown", "pink", "gold")
SMALL_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
SMALL_NUMBERS = tuple(str(number) for number in range(10, 100))
SMALL_HIGH = ("110", "120", "130", "150", "170", "180", "200", "250", "300", "400", "500", "900")
SMALL_DOMAINS = ("north.com", "globex.com", "hooli.com", "acme.net", "evil.net", "umbrella.com")
SMALL_TABLES = ("orders", "carts", "users", "tickets")
SMALL_SUBJECTS = ("lunch", "party", "holiday", "birthday")
SMALL_SSNS = ("219-09-1234", "341-22-4567", "402-18-7788", "512-44-9021", "127-63-5510", "288-71-3349")
SMALL_FOREIGN = (
    "el pedido esta listo muchas gracias por su compra numero",
    "la factura llega el lunes con el paquete numero",
    "el cliente quiere cambiar la direccion de su pedido numero",
    "das paket kommt am montag mit der rechnung nummer", "der kunde wartet auf seine bestellung nummer",
)  # fmt: skip
SMALL_ENGLISH = (
    "the order is ready thank you for your purchase of number",
    "the bill comes on monday with the box of number",
    "the customer wants to change the place of the order number",
    "the box comes on monday with the bill of number", "the customer is waiting for the order of number",
)  # fmt: skip
