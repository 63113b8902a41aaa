"""The page where users log in, and the end of a session."""

import asyncio
from collections.abc import Mapping
from functools import partial

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from smq.front.console.console import Console
from smq.front.console.templates import render
from smq.front.cookies import START, own_place, session_id_of, set_session
from smq.front.gate import Page
from smq.front.logins import FORM_BYTES_MAX, Asking, HttpLogins, LoggedIn, LoginRefused
from smq.front.rights import LOGIN_PATH, LOGOUT_PATH, visit_of
from smq.front.turns import standing_of
from smq.security.listener_rules import is_loopback
from smq.security.principals import USER, Principal

NO_USERS = "without authorizer.class.name there are no users here"


def login_routes(console: Console) -> list[Route]:
    """The routes."""
    guard = console.guard

    async def form(request: Request) -> Response:
        return _form(console, own_place(request.query_params.get("to", "")))

    return [
        Page(LOGIN_PATH, guard.open(form), methods=["GET"]),
        Route(LOGIN_PATH, guard.open(partial(_log_in, console)), methods=["POST"]),
        Route(LOGOUT_PATH, guard.page(partial(_log_out, console)), methods=["POST"]),
    ]


async def _log_in(console: Console, request: Request) -> Response:
    try:
        fields = await console.form(request, FORM_BYTES_MAX)
    except ValueError as reason:
        return _form(console, START, str(reason), 400)
    place, logins = own_place(fields.get("to", "")), console.rights.logins
    if logins is None or request.client is None:
        return _form(console, place, NO_USERS, 404)
    host, scheme, headers = request.client.host, request.url.scheme, dict(request.headers.raw)
    is_private, standing = scheme == "https" or is_loopback(host), standing_of(request.scope)
    asking = Asking(request.method, headers, host, is_private, standing, standing.has_tried)
    standing.has_tried = True
    try:
        holder = await _holder_of(logins, fields, asking)
    except LoginRefused as refused:
        return _form(console, place, str(refused), refused.answer.status_code)
    standing.learn(str(Principal(USER, holder.user)), is_known=True)
    standing.has_tried = False
    sessions, now_s = console.rights.sessions, asyncio.get_running_loop().time()
    former = sessions.visit(session_id_of(scheme, headers), host, now_s, is_use=False)
    if former is not None:
        sessions.end(former.session)
    response = RedirectResponse(place, 303)
    set_session(response, scheme, headers, sessions.begin(holder, host, now_s))
    return response


async def _log_out(console: Console, request: Request) -> Response:
    try:
        fields, visit = await console.form(request, FORM_BYTES_MAX), visit_of(request)
    except ValueError as reason:
        return Response(str(reason), 400)
    if not console.rights.has_rules:
        return Response(NO_USERS, 404)
    if visit is None or not console.guard.is_right(request, fields.get("token", "")):
        return Response("open the page again", 403)
    console.rights.sessions.end(visit.session)
    response = RedirectResponse(LOGIN_PATH, 303)
    set_session(response, request.url.scheme, dict(request.headers.raw), "")
    return response


async def _holder_of(logins: HttpLogins, fields: Mapping[str, str], asking: Asking) -> LoggedIn:
    """Who logs in with a form. Raises LoginRefused."""
    if jwt := fields.get("jwt", ""):
        return await logins.by_token(jwt, asking)
    return await logins.by_password(fields.get("user", ""), fields.get("password", ""), asking)


def _form(console: Console, place: str, sentence: str = "", status: int = 200) -> Response:
    logins = console.rights.logins
    values = {
        "title": "Log in",
        "here": LOGIN_PATH,
        "to": place,
        "sentence": sentence,
        "takes_tokens": logins is not None and logins.takes_tokens,
    }
    return render("login.html", values, status)
