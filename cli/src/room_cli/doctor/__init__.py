"""``room doctor``: is everything there that Room needs, and is it as it should be?"""
