"""Connecting a provider to a source: what it is called there, what to do there, and whose the secret is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from room_common.contracts.source_config import SOURCE_TYPES, SourceType


@dataclass(frozen=True, slots=True)
class Provider:
    """``secret``: what the provider calls it. ``from_us``: we may choose it; else the provider makes it."""

    label: str
    about: str
    secret: str
    from_us: bool
    steps: tuple[str, ...]


PROVIDERS: Final[Mapping[SourceType, Provider]] = {
    "github": Provider(
        "GitHub",
        "Pushes, pull requests, workflow runs, stars of a repository or an organization.",
        "Secret",
        True,
        (
            "In the repository open Settings, Webhooks, Add webhook.",
            "Payload URL: the URL above. Content type: application/json.",
            "Secret: any long random text, the same here and there.",
            "Choose which events it sends, and add the webhook. GitHub sends a ping at once.",
        ),
    ),
    "gitlab": Provider(
        "GitLab",
        "Pushes, merge requests, pipelines of a project or a group.",
        "Secret token",
        True,
        (
            "In the project open Settings, Webhooks, Add new webhook.",
            "URL: the URL above. Secret token: any long random text, the same here and there.",
            "Choose the triggers, and add the webhook. Test sends one.",
        ),
    ),
    "stripe": Provider(
        "Stripe",
        "Payments, invoices, subscriptions, disputes.",
        "Signing secret",
        False,
        (
            "In the dashboard open Developers, Webhooks, Add destination.",
            "Choose the events, then Webhook endpoint, and give it the URL above.",
            "Reveal the signing secret, which begins with whsec_, and store it here.",
        ),
    ),
    "hubspot": Provider(
        "HubSpot",
        "Contacts, companies, deals and their properties as they change.",
        "Client secret",
        False,
        (
            "In your app open Webhooks and set the target URL to the URL above.",
            "Create a subscription for each object and property, and activate it.",
            "The client secret is on the app's Auth page: store it here.",
        ),
    ),
    "slack": Provider(
        "Slack",
        "Messages and other events of a workspace, as something to react to.",
        "Signing secret",
        False,
        (
            "The signing secret is on your app's page Basic Information: store it here first.",
            "Open Event Subscriptions, switch it on, and give it the URL above as Request URL.",
            "Add the bot events, and save.",
        ),
    ),
    "shopify": Provider(
        "Shopify",
        "Orders, products, customers, refunds of a shop.",
        "Signing secret",
        False,
        (
            "In the admin open Settings, Notifications, Webhooks, Create webhook.",
            "Format: JSON. URL: the URL above.",
            "The secret that signs them is shown below the list of webhooks: store it here.",
        ),
    ),
    "standard": Provider(
        "Standard Webhooks",
        "Any sender that signs as Standard Webhooks define it, Svix among them.",
        "Signing secret",
        False,
        (
            "Add an endpoint at the sender, with the URL above.",
            "Its signing secret begins with whsec_: store it here.",
        ),
    ),
    "generic": Provider(
        "Anything else",
        "Any sender that can post to a URL: a script, an automation, a service of your own.",
        "Secret",
        True,
        (
            "Have the sender post to the URL above: JSON, a form, or text.",
            "If it can sign its posts or send a key along, say below in which header, and store the secret.",
        ),
    ),
}
assert set(PROVIDERS) == set(SOURCE_TYPES)

Cause = Literal["missing", "malformed", "mismatch", "stale", "no_secret_configured", "unknown_scheme"]

CAUSES: Final[Mapping[str, str]] = {
    "missing": "The request had no signature, or no key. Give the provider the secret, or see that it uses it.",
    "malformed": "The signature has not the form that this provider's have. Is it another kind of source?",
    "mismatch": "The signature is of another secret, or the body was changed on the way. Compare the two secrets.",
    "stale": "The signature is too old or from the future: a clock is wrong, or somebody repeats an old request.",
    "no_secret_configured": "No secret is stored here yet, so that nothing can be verified. Store it below.",
    "unknown_scheme": "It says how its deliveries are verified in a way that this version does not know.",
}
"""What each cause means and what helps, by the matcher's word for it."""
