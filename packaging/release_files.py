#!/usr/bin/env python3
"""Writes what packaging/release.sh puts beside and around the files of a release; the same input gives the same bytes.

usage: release_files.py zip ARCHIVE FOLDER NAME...             a zip of what is called NAME in FOLDER
       release_files.py sums FOLDER                            FOLDER/SHA256SUMS, of every file in it
       release_files.py sbom FOLDER COMPONENTS NAME VERSION    FOLDER/sumi.spdx.json: SPDX 2.3, of every file in it

COMPONENTS is a text file with a line for each thing that is in the files or made them, fields between tabs:
  inside   NAME VERSION PACKAGE FILES   its code is in FILES (with spaces between them)
  beside   NAME VERSION PACKAGE FILES   FILES load it as a shared library, which is in the archive, too
  tool     NAME VERSION PACKAGE         it compiled or linked
PACKAGE is a package URL (pkg:deb/debian/...), or empty. KNOWN has the licences.
In the environment: SOURCE_DATE_EPOCH, the time of the files.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
import zipfile
from typing import Dict, List

EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "315532800"))
# Licence (SPDX's names) and home of what can be in a release. A component that is not here stops the release.
KNOWN = {
    "utf8proc": ("MIT AND Unicode-DFS-2016", "https://juliastrings.github.io/utf8proc/"),
    "zlib": ("Zlib", "https://zlib.net"),
    "libspng": ("BSD-2-Clause", "https://libspng.org"),
    "libjpeg-turbo": ("IJG AND BSD-3-Clause AND Zlib", "https://libjpeg-turbo.org"),
    "libwebp": ("BSD-3-Clause", "https://developers.google.com/speed/webp"),
    "imgui": ("MIT", "https://github.com/ocornut/imgui"),
    "stb": ("MIT OR Unlicense", "https://github.com/nothings/stb"),
    "cuda-headers": ("LicenseRef-NVIDIA-CUDA", "https://developer.nvidia.com/cuda-toolkit"),
    "mingw-w64-runtime": ("ZPL-2.1", "https://www.mingw-w64.org"),
    "gcc": ("GPL-3.0-or-later WITH GCC-exception-3.1", "https://gcc.gnu.org"),
    "gcc-mingw-w64": ("GPL-3.0-or-later WITH GCC-exception-3.1", "https://gcc.gnu.org"),
    "glibc": ("LGPL-2.1-or-later", "https://www.gnu.org/software/libc/"),
    "libstdc++": ("GPL-3.0-or-later WITH GCC-exception-3.1", "https://gcc.gnu.org"),
    "nvcc": ("LicenseRef-NVIDIA-CUDA", "https://developer.nvidia.com/cuda-toolkit"),
}
NAME_OF_SBOM = "sumi.spdx.json"


def files_in(folder: str) -> List[str]:
    found = []
    for at, folders, names in os.walk(folder):
        folders.sort()
        found += [os.path.relpath(os.path.join(at, name), folder).replace(os.sep, "/") for name in names]
    return sorted(found)


def digest(path: str, kind: str) -> str:
    with open(path, "rb") as file:
        return hashlib.new(kind, file.read()).hexdigest()


def write_zip(archive: str, folder: str, names: List[str]) -> None:
    paths = []
    for name in names:
        whole = os.path.join(folder, name)
        if not os.path.exists(whole):
            raise SystemExit(f"release_files: {whole} is not there")
        paths += [name] if os.path.isfile(whole) else [f"{name}/{path}" for path in files_in(whole)]
    with zipfile.ZipFile(archive, "w") as out:
        for path in sorted(paths):
            whole = os.path.join(folder, path)
            entry = zipfile.ZipInfo(path, time.gmtime(max(EPOCH, 315532800))[:6])
            entry.create_system = 3  # the modes are those of Unix, wherever this runs
            entry.external_attr = (0o100755 if os.access(whole, os.X_OK) else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            with open(whole, "rb") as file:
                out.writestr(entry, file.read(), compresslevel=9)


def write_sums(folder: str) -> None:
    lines = [f"{digest(os.path.join(folder, path), 'sha256')}  {path}\n" for path in files_in(folder) if path != "SHA256SUMS"]
    with open(os.path.join(folder, "SHA256SUMS"), "w", newline="\n") as file:
        file.writelines(lines)


def identifier(kind: str, name: str) -> str:
    return f"SPDXRef-{kind}-" + re.sub(r"[^A-Za-z0-9.-]", "-", name.replace("+", "p"))


def write_sbom(folder: str, components: str, name: str, version: str) -> None:
    nothing_known = {"licenseConcluded": "NOASSERTION", "copyrightText": "NOASSERTION"}
    files = {}
    for path in files_in(folder):
        if path in (NAME_OF_SBOM, "SHA256SUMS"):
            continue
        whole = os.path.join(folder, path)
        kind = "BINARY" if re.search(r"(\.a|\.so(\.\d+)*|\.dll|\.lib|\.exe)$|^bin/", path) else "SOURCE" if path.endswith((".h", ".cmake", ".pc")) else "DOCUMENTATION"
        files[path] = {
            "SPDXID": identifier("File", path),
            "fileName": "./" + path,
            "fileTypes": [kind],
            "checksums": [{"algorithm": "SHA1", "checksumValue": digest(whole, "sha1")}, {"algorithm": "SHA256", "checksumValue": digest(whole, "sha256")}],
            "licenseInfoInFiles": ["NOASSERTION"],
            **nothing_known,
        }
    if len({file["SPDXID"] for file in files.values()}) != len(files):
        raise SystemExit("release_files: two files have one name in the SBOM")
    # As SPDX 2.3 has it, 7.9: of the SHA-1 of all files, sorted.
    code = hashlib.sha1("".join(sorted(file["checksums"][0]["checksumValue"] for file in files.values())).encode()).hexdigest()
    packages: List[Dict] = [{
        "SPDXID": "SPDXRef-Package-sumi",
        "name": "sumi",
        "versionInfo": version,
        "packageFileName": name,
        "supplier": "Organization: the sumi authors",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": True,
        "packageVerificationCode": {"packageVerificationCodeValue": code, "packageVerificationCodeExcludedFiles": ["./" + NAME_OF_SBOM, "./SHA256SUMS"]},
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "MIT",
        "licenseInfoFromFiles": ["NOASSERTION"],
        "copyrightText": "Copyright (c) 2026 the sumi authors",
    }]
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Package-sumi")]
    relations += [("SPDXRef-Package-sumi", "CONTAINS", file["SPDXID"]) for file in files.values()]
    with open(components) as text:
        rows = [line.rstrip("\n").split("\t") for line in text if line.strip()]
    for kind, component, of_version, package, *where in rows:
        if component not in KNOWN:
            raise SystemExit(f"release_files: {component} has no licence in KNOWN: add it, and its notice to what is installed")
        licence, home = KNOWN[component]
        mine = identifier("Package", component)
        packages.append({
            "SPDXID": mine,
            "name": component,
            "versionInfo": of_version,
            "supplier": "NOASSERTION",
            "downloadLocation": "NOASSERTION",
            "homepage": home,
            "filesAnalyzed": False,
            "licenseConcluded": licence,
            "licenseDeclared": licence,
            "copyrightText": "NOASSERTION",
            **({"externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": package}]} if package else {}),
        })
        if kind == "tool":
            relations.append((mine, "BUILD_TOOL_OF", "SPDXRef-Package-sumi"))
            continue
        for path in where[0].split():
            if path not in files:
                raise SystemExit(f"release_files: {component} is said to be in {path}, which is not in {folder}")
            relations.append((files[path]["SPDXID"], {"inside": "STATIC_LINK", "beside": "DYNAMIC_LINK"}[kind], mine))
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "documentNamespace": f"https://spdx.org/spdxdocs/{name}-{code}",
        "creationInfo": {"created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(EPOCH)), "creators": ["Tool: packaging-release.sh", "Organization: the sumi authors"]},
        "hasExtractedLicensingInfos": [{
            "licenseId": "LicenseRef-NVIDIA-CUDA",
            "name": "End user license agreement of NVIDIA's CUDA toolkit",
            "extractedText": "The licence is at https://docs.nvidia.com/cuda/eula/. Of the toolkit, functions of cuda_bf16.h, cuda_fp16.h and cuda_fp8.h are in the kernels, compiled; the notice that these headers ask for is share/licenses/sumi/cuda-headers.",
        }],
        "packages": packages,
        "files": list(files.values()),
        "relationships": [{"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other} for one, kind, other in relations],
    }
    with open(os.path.join(folder, NAME_OF_SBOM), "w", newline="\n") as file:
        json.dump(document, file, indent=1)
        file.write("\n")


def main(arguments: List[str]) -> None:
    verb, *rest = arguments or [""]
    if verb == "zip" and len(rest) >= 3:
        write_zip(rest[0], rest[1], rest[2:])
    elif verb == "sums" and len(rest) == 1:
        write_sums(rest[0])
    elif verb == "sbom" and len(rest) == 4:
        write_sbom(*rest)
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
