r"""What keys and tokens of each vendor look like, from the vendors' documentation.

One line each: vendor, the texts one of which stands in every such secret, and the pattern. Where the pattern has a
group, the group is the secret and the rest says whose it is. All are anchored by a fixed part; none matches a
placeholder. Those with no such text are tried on texts with a long word.
"""

from __future__ import annotations

_ASSIGNED = r"[\"']?[ \t]*(?:=>|:=|[:=])[ \t]*[\"']?"
"""Between the name of a setting and its value, in shells, YAML, JSON and code."""

_URL_PASSWORD = (
    r"(?<=://)[^\s/:@?#\"'<>\[\]{}]*:"
    r"((?!\[SECRET:|[${]|%[(s]|\*+@)[^\s/\"'<>]+)@(?=[0-9A-Za-z\[])"
)
"""A password, but not the variable or the stars that stand for one."""

PATTERNS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("aws", ("AKIA", "ASIA", "ABIA", "ACCA"), r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}(?![0-9A-Za-z])"),
    (
        "aws",
        ("ecret", "ECRET"),
        rf"(?i:aws_?secret_?(?:access_?)?key|secret_?access_?key){_ASSIGNED}([0-9A-Za-z/+]{{40}})(?![0-9A-Za-z/+=])",
    ),
    ("aws", ("ABSK",), r"ABSK[0-9A-Za-z+/]{100,}={0,2}"),
    ("google", ("AIza",), r"AIza[0-9A-Za-z_-]{35}"),
    ("google", ("GOCSPX-",), r"GOCSPX-[0-9A-Za-z_-]{28}"),
    ("google", ("ya29.",), r"ya29\.[0-9A-Za-z_-]{20,}"),
    ("google", ("1//0",), r"1//0[0-9A-Za-z_-]{40,}"),
    ("azure", ("AccountKey=", "SharedAccessKey="), r"(?:AccountKey|SharedAccessKey)=([0-9A-Za-z+/]{43,86}={1,2})"),
    ("azure", ("Q~",), r"[0-9A-Za-z_~.]{3}[0-9]Q~[0-9A-Za-z_~.-]{31,34}"),
    ("azure", ("AZDO",), r"[0-9A-Za-z]{76}AZDO[0-9A-Za-z]{4}"),
    ("azure", ("sig=",), r"(?<=[?&])sig=([0-9A-Za-z%+/]{43,}(?:%3[dD]|=)?)"),
    ("openai", ("sk-",), r"sk-(?:proj|svcacct|admin|service|None)-[0-9A-Za-z_-]{20,}"),
    ("openai", ("sk-",), r"sk-[0-9A-Za-z]{32,}"),
    ("anthropic", ("sk-ant-",), r"sk-ant-[a-z]{3,6}[0-9]{2}-[0-9A-Za-z_-]{20,}"),
    ("openrouter", ("sk-or-",), r"sk-or-v1-[0-9a-f]{64}"),
    ("github", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"gh[pousr]_[0-9A-Za-z_]{36,}"),
    ("github", ("github_pat_",), r"github_pat_[0-9A-Za-z_]{22,}"),
    (
        "gitlab",
        ("gl",),
        r"gl(?:pat|dt|rt|rtr|cbt|ptt|ft|soat|imt|agent|oas|ffct|wt)-[0-9A-Za-z_-]{20,}(?:\.[0-9a-z.]{2,})?",
    ),
    ("gitlab", ("GR1348941",), r"GR1348941[0-9A-Za-z_-]{20}"),
    ("slack", ("xox",), r"xox(?:[a-eoprs]|e\.xox[bp])-[0-9A-Za-z-]{10,}"),
    ("slack", ("xapp-",), r"xapp-[0-9]-[0-9A-Z]{9,}-[0-9]+-[0-9a-f]{32,}"),
    (
        "slack",
        ("hooks.slack.com",),
        r"https://hooks\.slack\.com/(?:services|workflows|triggers)/[0-9A-Za-z+/_-]{20,}",
    ),
    ("stripe", ("_live_", "_test_"), r"[rs]k_(?:live|test)_[0-9A-Za-z]{16,}"),
    ("stripe", ("whsec_",), r"whsec_[0-9A-Za-z+/]{24,}={0,2}"),
    ("twilio", ("SK",), r"SK[0-9a-f]{32}(?![0-9A-Za-z])"),
    ("twilio", ("uth_", "UTH_", "uthT"), rf"(?i:twilio_?auth_?token|authtoken){_ASSIGNED}([0-9a-f]{{32}})(?![0-9a-z])"),
    ("sendgrid", ("SG.",), r"SG\.[0-9A-Za-z_-]{22}\.[0-9A-Za-z_-]{43}"),
    ("mailgun", ("key-",), r"key-[0-9a-f]{32}(?![0-9A-Za-z])"),
    ("mailgun", ("",), r"[0-9a-f]{32}-[0-9a-f]{8}-[0-9a-f]{8}(?![0-9A-Za-z-])"),
    ("mailchimp", ("-us",), r"[0-9a-f]{32}-us[0-9]{1,2}(?![0-9A-Za-z])"),
    ("brevo", ("xkeysib-", "xsmtpsib-"), r"x(?:key|smtp)sib-[0-9a-f]{64}-[0-9A-Za-z]{16}"),
    ("huggingface", ("hf_",), r"hf_[A-Za-z]{34}(?![0-9A-Za-z])"),
    ("huggingface", ("api_org_",), r"api_org_[A-Za-z]{34}(?![0-9A-Za-z])"),
    ("npm", ("npm_",), r"npm_[0-9A-Za-z]{36}(?![0-9A-Za-z])"),
    ("npm", ("_authToken",), r"_authToken[ \t]*=[ \t]*[\"']?([0-9A-Za-z+/_=-]{20,})"),
    ("pypi", ("pypi-AgE",), r"pypi-AgE[0-9A-Za-z_-]{50,}"),
    ("rubygems", ("rubygems_",), r"rubygems_[0-9a-f]{48}"),
    ("crates", ("cio",), r"cio[0-9A-Za-z]{32}(?![0-9A-Za-z])"),
    ("docker", ("dckr_",), r"dckr_(?:pat|oat)_[0-9A-Za-z_-]{27,}"),
    ("digitalocean", ("_v1_",), r"do[oprt]_v1_[0-9a-f]{64}"),
    ("cloudflare", ("v1.0-",), r"v1\.0-[0-9a-f]{24}-[0-9a-f]{146}"),
    ("cloudflare", ("cfut_", "cfat_", "cfk_"), r"cf(?:ut|at|k)_[0-9A-Za-z]{40,}"),
    (
        "cloudflare",
        ("CLOUDFLARE_", "CF_API_", "cloudflare_"),
        rf"(?i:(?:cloudflare|cf)_api_(?:token|key)){_ASSIGNED}([0-9A-Za-z_-]{{37,40}})(?![0-9A-Za-z_-])",
    ),
    ("heroku", ("HRKU-",), r"HRKU-[0-9A-Za-z_-]{36,}"),
    ("heroku", ("HEROKU_API_KEY", "heroku_api_key"), rf"(?i:heroku_api_key){_ASSIGNED}([0-9a-fA-F-]{{36}})"),
    ("square", ("sq0",), r"sq0(?:atp|csp)-[0-9A-Za-z_-]{22,43}"),
    ("square", ("EAAA",), r"EAAA[0-9A-Za-z_-]{60}(?![0-9A-Za-z_-])"),
    ("meta", ("EAA",), r"EAA[0-9A-Za-z]{100,}"),
    ("shopify", ("shp",), r"shp(?:at|ca|pa|ss|tka)_[0-9a-fA-F]{32}"),
    ("databricks", ("dapi", "dose"), r"(?:dapi|dose)[0-9a-f]{32}(?:-[0-9])?(?![0-9A-Za-z])"),
    ("telegram", (":AA",), r"[0-9]{8,10}:AA[0-9A-Za-z_-]{33}(?![0-9A-Za-z_-])"),
    ("discord", ("",), r"[MNO][0-9A-Za-z_-]{23,27}\.[0-9A-Za-z_-]{6}\.[0-9A-Za-z_-]{27,45}(?![0-9A-Za-z_-])"),
    (
        "discord",
        ("/api/webhooks/",),
        r"https://(?:\w+\.)?discord(?:app)?\.com/api/webhooks/[0-9]{17,20}/[0-9A-Za-z_-]{60,}",
    ),
    ("atlassian", ("ATATT3", "ATCTT3"), r"AT[AC]TT3[0-9A-Za-z_=-]{40,}"),
    ("atlassian", ("ATBB",), r"ATBB[0-9A-Za-z]{32}(?![0-9A-Za-z])"),
    ("linear", ("lin_",), r"lin_(?:api|oauth)_[0-9A-Za-z]{40,}"),
    ("notion", ("secret_",), r"secret_[0-9A-Za-z]{43}(?![0-9A-Za-z])"),
    ("notion", ("ntn_",), r"ntn_[0-9A-Za-z]{40,}"),
    ("postman", ("PMAK-",), r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
    ("airtable", ("pat",), r"pat[0-9A-Za-z]{14}\.[0-9a-f]{64}"),
    ("figma", ("figd_",), r"figd_[0-9A-Za-z_-]{40,}"),
    ("newrelic", ("NRAK-",), r"NRAK-[0-9A-Z]{27}"),
    ("newrelic", ("NRII-", "NRIQ-"), r"NRI[IQ]-[0-9A-Za-z_-]{32}"),
    ("newrelic", ("NRAL",), r"[0-9a-f]{36}NRAL(?![0-9A-Za-z])"),
    (
        "datadog",
        ("DD_A", "dd_a", "DATADOG_A", "datadog_a"),
        rf"(?i:(?:dd|datadog)_(?:api|app|application)_key){_ASSIGNED}([0-9a-f]{{32}}(?:[0-9a-f]{{8}})?)(?![0-9a-z])",
    ),
    ("sentry", ("sntry",), r"sntry[su]_[0-9A-Za-z+/=_-]{40,}"),
    ("grafana", ("glc_",), r"glc_[0-9A-Za-z+/]{32,}={0,2}"),
    ("grafana", ("glsa_",), r"glsa_[0-9A-Za-z]{32}_[0-9a-fA-F]{8}"),
    ("vault", ("hvs.", "hvb.", "hvr."), r"hv[sbr]\.[0-9A-Za-z_-]{24,}"),
    ("terraform", (".atlasv1.",), r"[0-9A-Za-z]{14}\.atlasv1\.[0-9A-Za-z_-]{60,}"),
    ("doppler", ("dp.",), r"dp\.(?:pt|st|sa|ct|scim|audit)\.[0-9A-Za-z._-]{40,}"),
    ("pulumi", ("pul-",), r"pul-[0-9a-f]{40}"),
    ("planetscale", ("pscale_",), r"pscale_(?:tkn|pw|oauth)_[0-9A-Za-z_.=-]{32,}"),
    ("supabase", ("sbp_", "sb_secret_"), r"(?:sbp_[0-9a-f]{40}|sb_secret_[0-9A-Za-z_-]{30,})"),
    ("fly", ("FlyV1", "fm2_"), r"fm2_[0-9A-Za-z+/]{100,}={0,3}"),
    ("tailscale", ("tskey-",), r"tskey-(?:[a-z]+-)?[0-9A-Za-z]{6,}-[0-9A-Za-z]{20,}"),
    ("alibaba", ("LTAI",), r"LTAI[0-9A-Za-z]{20}(?![0-9A-Za-z])"),
    ("tencent", ("AKID",), r"AKID[0-9A-Za-z]{32}(?![0-9A-Za-z])"),
    ("groq", ("gsk_",), r"gsk_[0-9A-Za-z]{52}"),
    ("xai", ("xai-",), r"xai-[0-9A-Za-z]{80}"),
    ("perplexity", ("pplx-",), r"pplx-[0-9A-Za-z]{48}"),
    ("replicate", ("r8_",), r"r8_[0-9A-Za-z]{37}"),
    ("nvidia", ("nvapi-",), r"nvapi-[0-9A-Za-z_-]{60,}"),
    ("langsmith", ("lsv2_",), r"lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}"),
    ("langfuse", ("sk-lf-",), r"sk-lf-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
    ("plaid", ("access-",), r"access-(?:sandbox|development|production)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    ("dropbox", ("sl.",), r"sl\.[0-9A-Za-z_-]{130,}"),
    ("age", ("AGE-SECRET-KEY-1",), r"AGE-SECRET-KEY-1[02-9AC-HJ-NP-Z]{58}"),
    ("onepassword", ("ops_eyJ",), r"ops_eyJ[0-9A-Za-z_=-]{100,}"),
    ("jwt", ("eyJ",), r"eyJ[0-9A-Za-z_-]{10,}\.eyJ[0-9A-Za-z_-]{10,}\.[0-9A-Za-z_-]{10,}"),
    (
        "private_key",
        ("PRIVATE KEY",),
        r"-----BEGIN (?:[0-9A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----[0-9A-Za-z+/=\s:,.()-]*?"
        r"(?:-----END (?:[0-9A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----|\Z|(?=[^0-9A-Za-z+/=\s:,.()-]))",
    ),
    ("url_password", ("://",), _URL_PASSWORD),
    (
        "http_auth",
        ("uthorization", "UTHORIZATION"),
        r"(?i:authorization)[\"']?[ \t]*[:=][ \t]*[\"']?(?i:bearer|basic|token)[ \t]+([0-9A-Za-z._~+/=-]{16,})",
    ),
)
