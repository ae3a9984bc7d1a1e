"""How people say their data, by language, and what they say besides. ``{}`` is the value."""

from __future__ import annotations

Phrases = dict[str, tuple[str, ...]]

SAYING: dict[str, Phrases] = {
    "en": {
        "email": (
            "my email is {}",
            "please write to {}.",
            "you can reach me at {}, thanks",
            "I signed up with {} last week",
        ),
        "phone": (
            "my phone number is {}",
            "call me at {} after five",
            "you can reach me on {}.",
            "Mobile: {}",
            "tel {}",
        ),
        "card": ("my card number is {}", "I paid with {} yesterday", "Card: {} exp 12/27", "charge it to {}, please"),
        "iban": ("my IBAN is {}", "refund it to {} please", "Account: {}", "please use {} for the transfer."),
        "ip": ("my IP is {}", "requests from {} fail", "I was logged in from {}, not from there", "ping {} times out"),
        "crypto": ("send it to {}", "my wallet is {}", "the payout went to {} by mistake"),
        "us_ssn": ("my SSN is {}", "social security number: {}", "SSN {} on the form"),
        "uk_nino": ("my national insurance number is {}", "NI number: {}", "NINO {} on the payslip"),
        "in_aadhaar": ("my Aadhaar is {}", "Aadhaar number: {}", "Aadhaar {} is linked"),
        "ca_sin": ("my SIN is {}", "social insurance number: {}", "SIN {} on the T4"),
    },
    "de": {
        "email": ("meine E-Mail ist {}", "bitte an {} schreiben.", "ich bin mit {} angemeldet", "Mail: {}"),
        "phone": (
            "meine Telefonnummer ist {}",
            "rufen Sie mich unter {} an",
            "Handy: {}",
            "Tel. {}",
            "mobil {} erreichbar",
        ),
        "card": ("meine Kartennummer ist {}", "ich habe mit {} bezahlt", "Kreditkarte {} gültig bis 12/27"),
        "iban": ("meine IBAN lautet {}", "bitte auf {} überweisen", "Konto: {}"),
        "ip": ("meine IP ist {}", "Anfragen von {} schlagen fehl", "ich war von {} aus angemeldet"),
        "crypto": ("bitte an {} senden", "meine Wallet ist {}"),
        "de_steuer_id": ("meine Steuer-ID ist {}", "Steueridentifikationsnummer: {}", "IdNr. {}"),
    },
    "fr": {
        "email": ("mon email est {}", "écrivez-moi à {}.", "je me suis inscrit avec {}", "courriel : {}"),
        "phone": (
            "mon téléphone est le {}",
            "appelez-moi au {} ce soir",
            "Tél : {}",
            "portable {}",
            "vous pouvez me joindre au {}",
        ),
        "card": ("mon numéro de carte est {}", "j'ai payé avec {}", "CB : {} exp 12/27"),
        "iban": ("mon IBAN est {}", "remboursez-moi sur {} svp", "Compte : {}"),
        "ip": ("mon IP est {}", "les requêtes de {} échouent", "je me suis connecté depuis {}"),
        "crypto": ("envoyez-le à {}", "mon portefeuille est {}"),
        "fr_nir": ("mon numéro de sécurité sociale est {}", "NIR : {}", "n° de sécu {}"),
    },
    "es": {
        "email": ("mi correo es {}", "escríbanme a {}.", "me registré con {}", "email: {}"),
        "phone": ("mi teléfono es {}", "llámame al {} por la tarde", "Móvil: {}", "Tel. {}", "mi número es {}"),
        "card": ("mi tarjeta es {}", "he pagado con {}", "Tarjeta: {} cad 12/27"),
        "iban": ("mi IBAN es {}", "devuélvanlo a {} por favor", "Cuenta: {}"),
        "ip": ("mi IP es {}", "las peticiones desde {} fallan", "entré desde {}"),
        "crypto": ("envíalo a {}", "mi monedero es {}"),
        "es_dni": ("mi DNI es {}", "NIF: {}", "documento {} adjunto"),
    },
    "it": {
        "email": ("la mia email è {}", "scrivetemi a {}.", "mi sono registrato con {}"),
        "phone": (
            "il mio telefono è {}",
            "chiamatemi al {} dopo le cinque",
            "Cellulare: {}",
            "Tel. {}",
            "il mio numero è {}",
        ),
        "card": ("la mia carta è {}", "ho pagato con {}", "Carta: {} scad 12/27"),
        "iban": ("il mio IBAN è {}", "rimborsate su {} grazie", "Conto: {}"),
        "ip": ("il mio IP è {}", "le richieste da {} falliscono", "ero collegato da {}"),
        "crypto": ("inviatelo a {}", "il mio wallet è {}"),
        "it_codice_fiscale": ("il mio codice fiscale è {}", "C.F. {}", "CF: {}"),
    },
    "nl": {
        "email": ("mijn e-mail is {}", "schrijf naar {}.", "ik ben aangemeld met {}"),
        "phone": ("mijn telefoonnummer is {}", "bel me op {} na vijf uur", "Mobiel: {}", "Tel: {}", "gsm {}"),
        "card": ("mijn kaartnummer is {}", "ik heb betaald met {}", "Creditcard: {} geldig tot 12/27"),
        "iban": ("mijn IBAN is {}", "stort het op {} aub", "Rekening: {}"),
        "ip": ("mijn IP is {}", "verzoeken van {} mislukken", "ik was ingelogd vanaf {}"),
        "crypto": ("stuur het naar {}", "mijn wallet is {}"),
        "nl_bsn": ("mijn BSN is {}", "burgerservicenummer: {}", "BSN {} op de loonstrook"),
    },
    "pl": {
        "email": ("mój email to {}", "proszę pisać na {}.", "zarejestrowałem się z {}"),
        "phone": (
            "mój telefon to {}",
            "proszę dzwonić na {} po piątej",
            "Tel. {}",
            "numer telefonu: {}",
            "tel. kom. {}",
        ),
        "card": ("numer mojej karty to {}", "zapłaciłem kartą {}", "Karta: {} ważna do 12/27"),
        "iban": ("mój IBAN to {}", "proszę o zwrot na {}", "Konto: {}"),
        "ip": ("moje IP to {}", "zapytania z {} nie działają", "logowałem się z {}"),
        "crypto": ("proszę wysłać na {}", "mój portfel to {}"),
        "pl_pesel": ("mój PESEL to {}", "PESEL: {}", "nr PESEL {} na umowie"),
    },
    "pt": {
        "email": ("meu email é {}", "escreva para {}.", "me cadastrei com {}"),
        "phone": ("meu telefone é {}", "me ligue no {} depois das cinco", "Celular: {}", "Tel: {}", "whatsapp {}"),
        "card": ("meu cartão é {}", "paguei com {}", "Cartão: {} val 12/27"),
        "iban": ("meu IBAN é {}", "devolvam para {} por favor", "Conta: {}"),
        "ip": ("meu IP é {}", "as requisições de {} falham", "entrei de {}"),
        "crypto": ("envie para {}", "minha carteira é {}"),
        "br_cpf": ("meu CPF é {}", "CPF: {}", "CPF {} na nota"),
    },
    "sv": {
        "email": ("min e-post är {}", "skriv till {}.", "jag är registrerad med {}"),
        "phone": ("mitt telefonnummer är {}", "ring mig på {} efter fem", "Mobil: {}", "Tel: {}", "mitt nummer är {}"),
        "card": ("mitt kortnummer är {}", "jag betalade med {}", "Kort: {} giltigt till 12/27"),
        "iban": ("mitt IBAN är {}", "sätt in det på {} tack", "Konto: {}"),
        "ip": ("min IP är {}", "anrop från {} misslyckas", "jag var inloggad från {}"),
        "crypto": ("skicka det till {}", "min plånbok är {}"),
        "se_personnummer": ("mitt personnummer är {}", "personnummer: {}", "personnr {} i avtalet"),
    },
}

ANYWHERE: Phrases = {
    "email": ("{}", "<{}>", '{{"email": "{}"}}', "mailto:{}", "From: {}", "user={} status=active"),
    "phone": ('{{"phone": "{}"}}', "Tel: {}", "phone={}"),
    "card": ('{{"card_number": "{}"}}', "card={}", "{}"),
    "iban": ("IBAN {}", '{{"iban": "{}"}}', "{}"),
    "ip": ("http://{}/status", "client_ip={}", '{{"host": "{}"}}', "from {} port 22", "GET /index.html {} 200"),
    "crypto": ('{{"to": "{}"}}', "wallet: {}", "{}"),
    "secret": ("the key is {}", "API_KEY={}", '{{"token": "{}"}}', "I pasted {} here", "curl -H 'X-Key: {}'", "{}"),
}
"""Forms, logs and JSON, the same in all languages; of addresses in a URL only those of the fourth version."""

BESIDES: dict[str, tuple[str, ...]] = {
    "en": (
        "Hello, I have a question about my contract.",
        "It has not worked since yesterday evening, and I have tried everything that the page suggests.",
        "Could somebody look into this before the weekend?",
        "The app shows an error whenever I open the settings.",
        "Thanks a lot for your patience.",
    ),
    "de": (
        "Guten Tag, ich habe eine Frage zu meinem Vertrag.",
        "Seit gestern Abend funktioniert gar nichts mehr.",
        "Vielen Dank im Voraus.",
    ),
    "fr": (
        "Bonjour, j'ai une question sur mon contrat.",
        "Depuis hier soir plus rien ne marche chez moi.",
        "Merci d'avance pour votre aide.",
    ),
    "es": (
        "Hola, tengo una pregunta sobre mi contrato.",
        "Desde anoche no funciona nada en casa.",
        "Muchas gracias de antemano.",
    ),
    "it": (
        "Buongiorno, ho una domanda sul mio contratto.",
        "Da ieri sera non funziona più niente.",
        "Grazie mille in anticipo.",
    ),
    "nl": (
        "Hallo, ik heb een vraag over mijn abonnement.",
        "Sinds gisteravond werkt er niets meer.",
        "Alvast hartelijk dank.",
    ),
    "pl": (
        "Dzień dobry, mam pytanie o moją umowę.",
        "Od wczoraj wieczorem nic nie działa.",
        "Z góry dziękuję za pomoc.",
    ),
    "pt": (
        "Olá, tenho uma dúvida sobre o meu contrato.",
        "Desde ontem à noite nada funciona aqui.",
        "Muito obrigado pela ajuda.",
    ),
    "sv": ("Hej, jag har en fråga om mitt avtal.", "Sedan i går kväll fungerar ingenting.", "Tack på förhand."),
}
